/* What the searches for packings share. cffi reads this file, too, so it includes nothing. */

/* Blocks to pack. Arrays are by block, except those of the pairs. */
struct packing {
    int64_t count, grain;                    /* grain: the smallest alignment */
    const int64_t *size, *mask, *start, *end; /* mask: the alignment less 1; the last step is included */
    const int64_t *saved, *until;            /* bytes that it shares with earlier blocks at most, up to which step */
    const int64_t *lies_over;                /* whether others may overlap it, and so be at its offset */
    const int64_t *twin;                     /* a block that is like it and comes first, or -1 */
    const int64_t *pair_at, *pair;           /* pair[pair_at[i] .. pair_at[i + 1]]: blocks that i may overlap, ... */
    const int64_t *below, *above;            /* ... and how far i must then be below each, or else above it */
};

/* Both lower the peak of a packing `offset` as far as `work` allows, at most to `bound`. They subtract their work from
   `work`, and return 1 if they proved that no packing is lower, 0 if not, and -1 without memory. */
int64_t uma_pack_exactly(const struct packing *blocks, int64_t bound, int64_t *work, int64_t *offset);
int64_t uma_pack_by_ejection(const struct packing *blocks, int64_t bound, int64_t *work, int64_t *offset);
