/* Between the start-up code of a CPU and what all boards have in common. */
#ifndef UMA_EMULATED_BOARD_H
#define UMA_EMULATED_BOARD_H

#include <stdint.h>

/* Asks the emulator; the words that the operation takes are at `arguments`. */
uintptr_t uma_semihosting(uint32_t operation, const void *arguments);

/* With a stack, runs the program, and does not return; nor does the other, after a fault of the CPU. */
void uma_board_start(void);
void uma_board_stopped(void);

#endif
