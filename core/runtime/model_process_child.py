"""The process in which `isolated` runs compiled models. It needs cffi and the standard library only, and is started as
a script: what it imports of them, it finds where it is told.

It is told what to do in lines of JSON on stdin, and answers each with one on what was its stdout; what models print
goes to stderr. All data are in files that both processes map.
"""

from __future__ import annotations

import json
import mmap
import os
import resource
import sys
import threading
import time
import traceback
from typing import Any


class _Model:
    """A library with a model, and one context of it."""

    def __init__(self, ffi: Any, request: dict[str, Any]) -> None:
        self._ffi = ffi
        self._map = mmap.mmap(request["file"], request["bytes"])
        self._base = ffi.from_buffer(self._map)
        self.library = ffi.dlopen(request["library"], ffi.RTLD_NOW | ffi.RTLD_LOCAL)
        self.model = self.library.uma_model_entry()
        self.devices: list[Any] = []
        self._kept: list[Any] = []
        self._layout = request
        self._inputs, self._outputs = self._table("const void *[]", "inputs"), self._table("void *[]", "outputs")
        self._is_stepwise = request["watch"] is not None

    def open(self) -> dict[str, Any]:
        """Open the devices and make the context."""
        ffi, model, layout = self._ffi, self.model, self._layout
        sizes = [int(model.arena_bytes), int(model.state_bytes), int(model.n_devices)]
        if sizes != layout["sizes"]:
            return {"mismatch": sizes}
        table = ffi.new("uma_device[]", max(model.n_devices, 1))
        self._kept += [table]
        for at in range(model.n_devices):
            info = model.devices + at
            state = self._new(info.driver.state_bytes, max(info.driver.state_alignment, 64))
            memory = self._new(info.bus_bytes if info.base == 0 else 0, 64)
            code = model.open(table + at, info, state, memory)
            if code != 0:
                return {"closed": at, "code": code}
            self.devices.append(table + at)
        devices = ffi.new("uma_device *[]", self.devices) if self.devices else ffi.NULL
        self._context = self._new(model.context_bytes, 64)
        self._kept += [devices]
        status = model.init(
            self._context,
            self.at(layout["arena"]),
            model.arena_bytes,
            self.at(layout["state"]),
            model.state_bytes,
            devices,
        )
        if status == 0 and self._is_stepwise:
            self._zones = ffi.new("uma_zone[]", max(len(layout["zones"]), 1))
            for row, (at, nbytes) in enumerate(layout["zones"]):
                self._zones[row].at, self._zones[row].bytes = self.at(at), nbytes
        return {
            "status": status,
            "counters": [int(device.driver.n_counters) for device in self.devices],
            "state_offsets": [int(model.state_offsets[at]) for at in range(model.n_states)],
        }

    def run(self, wanted: bool) -> dict[str, Any]:
        """One run; of the steps that are wanted, as the file says, or all."""
        ffi, layout = self._ffi, self._layout
        if self._is_stepwise:
            self.library.uma_watch_steps(
                ffi.cast("uma_watch *", self.at(layout["watch"])),
                self.at(layout["wanted"]) if wanted else ffi.NULL,
                self._zones,
                len(layout["zones"]),
                self.at(layout["should_be"]),
            )
        status = self.model.invoke(self._context, self._inputs, self._outputs)
        result: dict[str, Any] = {"status": status}
        if status != 0 and self.devices:
            fault = self.model.fault(self._context)
            result["fault"] = [fault.device, fault.step, fault.code]
            driver = self.devices[fault.device].driver
            count = driver.n_counters
            result["counted"] = [int(driver.counter(self.devices[fault.device], i)) for i in range(count)]
        return result

    def reset(self) -> dict[str, Any]:
        """The state is what it is before the first run."""
        return {"status": self.model.reset(self._context) if self.model.n_states else 0}

    def close(self) -> dict[str, Any]:
        """Close the devices, the last one first."""
        codes = []
        while self.devices:
            device = self.devices.pop()
            codes.append([len(self.devices), device.driver.close(device) if device.driver.close else 0])
        return {"closed": codes}

    def at(self, offset: int) -> Any:
        """A pointer into the file."""
        return self._base + offset

    def _table(self, type_: str, name: str) -> Any:
        pointers = [self.at(offset) for offset in self._layout[name]]
        return self._ffi.new(type_, pointers or [self._ffi.NULL])

    def _new(self, nbytes: int, alignment: int) -> Any:
        """Zeroed memory, aligned."""
        ffi = self._ffi
        memory = ffi.new("unsigned char[]", max(int(nbytes), 1) + int(alignment))
        self._kept.append(memory)
        return memory + (-int(ffi.cast("uintptr_t", memory)) % int(alignment))


def _serve(answers: Any) -> None:
    request = json.loads(sys.stdin.readline())
    sys.path[:] = request["path"]
    import cffi

    ffi = cffi.FFI()
    ffi.cdef(request["declarations"])
    models: dict[str, _Model] = {}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = _answer(ffi, models, request)
        except Exception:  # noqa: BLE001 - whatever it is, it is not a fault of what is run
            answer = {"fault_of_ours": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


def _answer(ffi: Any, models: dict[str, _Model], request: dict[str, Any]) -> dict[str, Any]:
    if request["do"] == "load":
        try:
            models[request["name"]] = _Model(ffi, request)
        except (OSError, AttributeError) as error:
            return {"unloaded": str(error)}
        return models[request["name"]].open()
    model = models[request["name"]]
    match request["do"]:
        case "run":
            return model.run(request["wanted"])
        case "reset":
            return model.reset()
    return model.close()


def _watch(parent: int) -> None:
    """End with the process that started this one, whatever is run meanwhile."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _main() -> None:
    # What C code prints is not an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash is what is looked for
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()
    _serve(answers)
    answers.flush()
    os._exit(0)  # what a driver left behind is not waited for


if __name__ == "__main__":
    _main()
