/* The matrix unit as logic, made a library from verilog/ by Verilator. */
#ifndef MXU_RTL_H
#define MXU_RTL_H

#include <stdint.h>

void *mxu_rtl_new(void);
void mxu_rtl_delete(void *unit);
uint32_t mxu_rtl_read(void *unit, uint32_t offset);
void mxu_rtl_write(void *unit, uint32_t offset, uint32_t value);
void mxu_rtl_wait(void *unit); /* until no command runs */

#endif
