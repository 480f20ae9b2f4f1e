#include "uma_onednn.h"

#include <stdlib.h>

#include "uma_onednn_made.h"

/* What a device keeps: the engine, all that was made, and memory to work in, as much as the largest of these wants. The
 * library allocates when something is made, and so does this; no run after the first one does. */
typedef struct {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    uma_onednn_made *last; /* which was used last, of a ring: the next one is what a model uses next */
    void *scratchpad;
    size_t scratchpad_bytes;
} state;

static int32_t close_device(uma_device *device)
{
    state *s = device->state;

    if (s->last != NULL) {
        uma_onednn_made *made = s->last->next;

        s->last->next = NULL;
        while (made != NULL) {
            uma_onednn_made *next = made->next;

            uma_onednn_drop(made);
            free(made);
            made = next;
        }
    }
    free(s->scratchpad);
    if (s->stream != NULL) dnnl_stream_destroy(s->stream);
    if (s->engine != NULL) dnnl_engine_destroy(s->engine);
    memset(s, 0, sizeof *s);
    return 0;
}

static int32_t open_device(uma_device *device)
{
    state *s = device->state;
    int32_t code;

    if (dnnl_version()->major != 3) return UMA_ONEDNN_FAULT_VERSION;
    code = dnnl_engine_create(&s->engine, UMA_DNNL_CPU, 0);
    if (code == 0) code = dnnl_stream_create(&s->stream, s->engine, UMA_DNNL_IN_ORDER);
    if (code != 0) close_device(device);
    return code;
}

static int32_t find(state *s, const uma_onednn_spec *spec, const void *weights)
{
    uma_onednn_made *made = s->last;

    if (made != NULL) {
        do {
            made = made->next;
            if (memcmp(made->key, spec->key, sizeof made->key) == 0) {
                s->last = made;
                return 0;
            }
        } while (made != s->last);
    }
    made = calloc(1, sizeof *made);
    if (made == NULL) return UMA_ONEDNN_FAULT_MEMORY;
    {
        const int32_t code = uma_onednn_make(made, s->engine, s->stream, spec, weights);

        if (code == 0 && made->scratchpad_bytes > s->scratchpad_bytes) {
            free(s->scratchpad);
            s->scratchpad = malloc(made->scratchpad_bytes + 64);
            s->scratchpad_bytes = s->scratchpad == NULL ? 0 : made->scratchpad_bytes;
        }
        if (code != 0 || made->scratchpad_bytes > s->scratchpad_bytes) {
            uma_onednn_drop(made);
            free(made);
            return code != 0 ? code : UMA_ONEDNN_FAULT_MEMORY;
        }
    }
    made->next = s->last == NULL ? made : s->last->next;
    if (s->last != NULL) s->last->next = made;
    s->last = made;
    return 0;
}

int32_t uma_onednn_run(uma_device *device, const void *spec, const void *src, const void *weights, const void *bias,
                       const void *other, void *dst)
{
    const void *const given[UMA_ONEDNN_ROLES] = {src, weights, bias, other, dst};
    state *s = device->state;
    uma_onednn_spec said;
    int i;

    memcpy(&said, spec, sizeof said);
    UMA_TRY(find(s, &said, weights));
    for (i = 0; i < UMA_ONEDNN_ROLES; i++) {
        const dnnl_memory_t memory = s->last->memory[i];

        if (memory == NULL || (i == UMA_ONEDNN_WEIGHTS && s->last->is_packed)) continue;
        UMA_TRY(dnnl_memory_set_data_handle(memory, (void *)(uintptr_t)given[i]));
    }
    if (s->last->scratchpad != NULL) {
        unsigned char *at = s->scratchpad;

        at += (64u - (uintptr_t)at % 64u) % 64u;
        UMA_TRY(dnnl_memory_set_data_handle(s->last->scratchpad, at));
    }
    UMA_TRY(dnnl_primitive_execute(s->last->primitive, s->stream, s->last->n_args, s->last->args));
    return dnnl_stream_wait(s->stream);
}

const uma_driver uma_onednn_driver = {
    "onednn", sizeof(state), sizeof(void *), open_device, NULL, NULL, close_device, 0, NULL,
};
