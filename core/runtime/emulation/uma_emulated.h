/* What a program that an emulator runs asks of the system below it: a stream to read, one to write, and memory. */
#ifndef UMA_EMULATED_H
#define UMA_EMULATED_H

#include <stddef.h>

/* Runs the model once, or not at all, as the file "request" says, and writes what came of it to the file "response".
 * Gives 0, or an exit status that says that there is no response. */
int uma_emulated(void);

/* Opens both files. All of these give 0 where they did what they are for. */
int uma_system_open(void);
int uma_system_read(void *data, size_t bytes);
int uma_system_write(const void *data, size_t bytes);
int uma_system_close(void);

/* Marks the stack below the caller; and how much of it was used since, 0 where there is no telling. Both are to be called
 * from one function. */
void uma_system_paint(void);
size_t uma_system_painted(void);

/* How many bytes uma_system_take can give, all together. */
size_t uma_system_room(void);
/* Memory aligned to UMA_SYSTEM_ALIGNMENT; never given back. Null where there is none. */
void *uma_system_take(size_t bytes);

#define UMA_SYSTEM_ALIGNMENT 64u

#endif
