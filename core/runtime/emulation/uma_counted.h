/* Marks for the counting of instructions (uma_counting.c). A mark is no instruction: it notes an address of the program,
 * and what begins or ends there, in a section that is not loaded. A compiler that makes two places of one notes both. */
#ifndef UMA_COUNTED_H
#define UMA_COUNTED_H

#if defined(UMA_COUNTED)

#if __SIZEOF_POINTER__ == 8
#define UMA_COUNTED_WORD ".8byte"
#else
#define UMA_COUNTED_WORD ".4byte"
#endif

/* An address, and the mark in four bytes. */
#define UMA_MARK(what) \
    __asm__ volatile("779: .pushsection .uma_marks,\"\",%%progbits; " UMA_COUNTED_WORD \
                     " 779b; .4byte %c0; .popsection" : : "i"(what) : "memory")

/* The call of the model; beyond the hooks of its run, what is no step's; the end of the step behind the last one. All
 * other marks are the numbers of steps that end. */
#define UMA_MARK_BEGIN() UMA_MARK(-1)
#define UMA_MARK_END() UMA_MARK(-2)
#define UMA_MARK_OUTSIDE() UMA_MARK(-3)
#define UMA_MARK_NEXT() UMA_MARK(-4)

#else

#define UMA_MARK_BEGIN() ((void)0)
#define UMA_MARK_END() ((void)0)

#endif

#endif
