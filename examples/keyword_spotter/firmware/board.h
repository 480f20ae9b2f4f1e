/* What the program asks of its board: to print, to end, and what it takes of its memories. */
#ifndef BOARD_H
#define BOARD_H

#include <stddef.h>

void board_say(const char *text);
void board_number(long number);
void board_end(int status);

/* Bytes of code and constants; of variables; and of the stack as far as it was ever used. */
size_t board_flash_bytes(void);
size_t board_ram_bytes(void);
size_t board_stack_bytes(void);

int main(void);

#endif
