/* One second of sound, from samples to a word: front end, model, and UltraTrail, which is its simulator here. */
#include "board.h"
#include "clip.h"
#include "front_end.h"
#include "spotter.h"

#define CYCLES 0 /* the driver's first counter */
#define STATE_BYTES 1024

static const char *const words[spotter_OUTPUT_logits_ELEMENTS] = {
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "silence", "unknown",
};

static front_end_memory front_end;
static int8_t features[spotter_INPUT_m_features_ELEMENTS], logits[spotter_OUTPUT_logits_ELEMENTS];
static spotter_context context;
UMA_ALIGNAS(spotter_ARENA_ALIGNMENT) static unsigned char arena[spotter_ARENA_BYTES];
static uma_device device;
UMA_ALIGNAS(64) static unsigned char state[STATE_BYTES], simulator[spotter_DEVICE_ultra_trail_BUS_BYTES];

static void row(const char *name, size_t bytes)
{
    board_say(name);
    board_number((long)bytes);
    board_say(" bytes\n");
}

/* Features that differ from those that features.py computes, in float64, of the same clip. */
static void compare(void)
{
    long by_one = 0, by_more = 0;
    size_t i;

    for (i = 0; i < sizeof features; i++) {
        const int difference = features[i] - clip_features[i];

        if (difference == 1 || difference == -1) by_one++;
        else if (difference != 0) by_more++;
    }
    board_say("features: ");
    board_number(by_one);
    board_say(" differ by one step, ");
    board_number(by_more);
    board_say(" by more\n");
}

int main(void)
{
    const uma_device_info *info = &spotter_model()->devices[spotter_DEVICE_ultra_trail_INDEX];
    const spotter_devices devices = {&device};
    const spotter_inputs inputs = {features};
    const spotter_outputs outputs = {logits};
    int best = 0, i;

    front_end_features(&front_end, clip_samples, features);
    if (info->driver->state_bytes > sizeof state) return 2;
    if (uma_device_open(&device, info, state, simulator) != 0) return 3;
    if (spotter_init(&context, arena, sizeof arena, &devices) != UMA_OK) return 4;
    if (spotter_run(&context, &inputs, &outputs) != UMA_OK) return 5;
    board_say("logits:");
    for (i = 0; i < (int)spotter_OUTPUT_logits_ELEMENTS; i++) {
        if (logits[i] > logits[best]) best = i;
        board_say(" ");
        board_number(logits[i]);
    }
    board_say("\nword: ");
    board_say(words[best]);
    board_say("\ncycles: ");
    board_number((long)device.driver->counter(&device, CYCLES));
    board_say("\n");
    compare();
    row("flash: ", board_flash_bytes());
    row("  of these the clip: ", sizeof clip_samples + sizeof clip_features);
    row("RAM: ", board_ram_bytes());
    row("  of these what the simulator works in: ", sizeof simulator);
    row("  of these the front end: ", sizeof front_end);
    row("stack: ", board_stack_bytes());
    return uma_device_close(&device) != 0;
}
