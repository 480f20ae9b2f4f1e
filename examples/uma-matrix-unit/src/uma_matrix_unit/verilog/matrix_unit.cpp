// What clocks the matrix unit of matrix_unit.sv, gives it host memory, and is called from C: csrc/mxu_rtl.h.
#include <cstring>

#include "Vmatrix_unit.h"

extern "C" {
#include "mxu_rtl.h"
}

namespace {

// In which no command ends: something is wrong with the unit, and the driver will say so.
constexpr int kLongest = 10000000;

struct Unit {
    VerilatedContext context;
    Vmatrix_unit top{&context};

    Unit() {
        top.clk = 0;
        top.rst = 1;
        top.read = top.write = 0;
        top.offset = top.wdata = 0;
        top.host_rdata = 0;
        top.eval();
        tick();
        top.rst = 0;
        top.eval();
    }

    ~Unit() { top.final(); }

    // One cycle. What the unit wants of host memory is known before its edge.
    void tick() {
        auto *host = reinterpret_cast<unsigned char *>(static_cast<uintptr_t>(top.host_address));
        uint64_t data = 0;

        if (top.host_read) {
            std::memcpy(&data, host, top.host_bytes);
            top.host_rdata = data;
        }
        if (top.host_write) {
            data = top.host_wdata;
            std::memcpy(host, &data, top.host_bytes);
        }
        top.clk = 1;
        top.eval();
        top.clk = 0;
        top.eval();
    }
};

}  // namespace

void *mxu_rtl_new(void)
{
    return new Unit;
}

void mxu_rtl_delete(void *unit)
{
    delete static_cast<Unit *>(unit);
}

uint32_t mxu_rtl_read(void *self, uint32_t offset)
{
    Unit &unit = *static_cast<Unit *>(self);

    unit.top.offset = offset;
    unit.top.read = 1;
    unit.top.eval();
    const uint32_t value = unit.top.rdata;
    unit.tick();
    unit.top.read = 0;
    unit.top.eval();
    return value;
}

void mxu_rtl_write(void *self, uint32_t offset, uint32_t value)
{
    Unit &unit = *static_cast<Unit *>(self);

    unit.top.offset = offset;
    unit.top.wdata = value;
    unit.top.write = 1;
    unit.tick();
    unit.top.write = 0;
    unit.top.eval();
}

void mxu_rtl_wait(void *self)
{
    Unit &unit = *static_cast<Unit *>(self);

    for (int n = 0; n < kLongest && !unit.top.irq; n++) unit.tick();
}
