/* Linux below an emulated program. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "uma_emulated.h"

static FILE *asked, *answer;

int uma_system_open(void)
{
    asked = fopen("request", "rb");
    answer = fopen("response", "wb");
    return asked == NULL || answer == NULL;
}

int uma_system_read(void *data, size_t bytes)
{
    return bytes > 0 && fread(data, 1, bytes, asked) != bytes;
}

int uma_system_write(const void *data, size_t bytes)
{
    return bytes > 0 && fwrite(data, 1, bytes, answer) != bytes;
}

int uma_system_close(void)
{
    return fclose(asked) != 0 || fclose(answer) != 0;
}

void uma_system_paint(void)
{
}

size_t uma_system_painted(void)
{
    return 0;
}

/* What there is of memory, only taking it tells. */
size_t uma_system_room(void)
{
    return SIZE_MAX;
}

void *uma_system_take(size_t bytes)
{
    unsigned char *memory = (unsigned char *)malloc(bytes + UMA_SYSTEM_ALIGNMENT);

    if (memory == NULL) {
        fputs("there is no memory left\n", stderr);
        exit(1);
    }
    return memory + (UMA_SYSTEM_ALIGNMENT - (uintptr_t)memory % UMA_SYSTEM_ALIGNMENT);
}

int main(void)
{
    return uma_emulated();
}
