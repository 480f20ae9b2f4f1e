/* Runs the tests of the other files: prints what fails, exits with 1. With the argument "run" it runs networks from
 * standard input: see run_networks.
 */
#include <stdlib.h>

#include "ut_tests.h"

int failures;

static int read_some(void *to, size_t bytes)
{
    return fread(to, 1, bytes, stdin) == bytes;
}

static void *memory_of(size_t bytes)
{
    void *const made = malloc(bytes > 0 ? bytes : 1);

    if (made == NULL) exit(2);
    return made;
}

/* From standard input, until its end: 9 parameters (int64), bytes of the simulator, of the network, of the caller's
 * memory, and whether to use the functional simulator alone (uint32 each); then the network, whose places are in region
 * 0; then the caller's memory. To standard output: the fault (int32), all counters, the caller's memory. Everything is
 * in memory of exactly its size. */
static void run_networks(void)
{
    int64_t parameters[UT_N_PARAMETERS];

    while (read_some(parameters, sizeof parameters)) {
        uint32_t head[4];
        uma_device_info info = {"ut", &ut_driver, ut_sim_bus, 0, 0, parameters, UT_N_PARAMETERS};
        uma_region region;
        uma_device device;
        void *simulator, *network;
        int32_t fault, i;

        if (!read_some(head, sizeof head)) exit(2);
        simulator = memory_of(head[0]);
        network = memory_of(head[1]);
        region.at = memory_of(head[2]);
        region.bytes = head[2];
        region.writable = 1;
        if (!read_some(network, head[1]) || !read_some(region.at, head[2])) exit(2);
        info.bus_bytes = head[0];
        if (head[3]) info.bus = ut_functional_bus;
        CHECK(uma_device_open(&device, &info, no_state, simulator) == 0);
        fault = ut_run(&device, network, head[1], &region, 1);
        fwrite(&fault, sizeof fault, 1, stdout);
        for (i = 0; i < ut_driver.n_counters; i++) {
            const uint64_t count = counter(&device, i);
            fwrite(&count, sizeof count, 1, stdout);
        }
        fwrite(region.at, 1, region.bytes, stdout);
        free(simulator);
        free(network);
        free(region.at);
    }
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "run") == 0) {
        run_networks();
    } else {
        test_machines();
        test_driver();
    }
    return failures != 0;
}
