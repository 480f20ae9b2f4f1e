/* Opens a device, runs the descriptions in the files that are given, twice, and says the first fault, and what it made.
 * The library is fake_dnnl.c. */
#include <stdio.h>
#include <stdlib.h>

#include "uma_onednn.h"
#include "uma_onednn_spec.h"

static float numbers[1024], result[1024];

int main(int argc, char **argv)
{
    const uma_device_info info = {"onednn", &uma_onednn_driver, NULL, 0, 0, NULL, 0};
    void *state = malloc(uma_onednn_driver.state_bytes);
    uma_device device;
    int32_t code;
    int turn, i;

    if (state == NULL) return 1;
    code = uma_device_open(&device, &info, state, NULL);
    if (code == 0) {
        for (turn = 0; turn < 2; turn++) {
            for (i = 1; i < argc && code == 0; i++) {
                uma_onednn_spec spec;
                FILE *file = fopen(argv[i], "rb");

                if (file == NULL || fread(&spec, 1, sizeof spec, file) != sizeof spec || fgetc(file) != EOF) return 1;
                fclose(file);
                code = uma_onednn_run(&device, &spec, numbers, numbers, numbers, numbers, result);
            }
        }
        uma_device_close(&device);
    }
    free(state);
    printf("%d\n", (int)code);
    return 0;
}
