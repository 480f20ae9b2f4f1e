"""TC-ResNet8 with driver and simulator on an emulated Cortex-M4: the bytes that this machine makes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests._support.conv_nets import reference, tc_resnet8, to_onnx

import uma
from uma.plugins import PluginEntry, PluginHost

PLUGINS = PluginHost(
    lambda: [
        PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
        PluginEntry("ultra_trail", "uma_ultratrail", "uma-ultratrail", "0.1.0"),
        PluginEntry("ultratrail", "uma_ultratrail", "uma-ultratrail", "0.1.0"),
    ]
)


@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm")
def test_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UMA_CACHE_DIR", str(tmp_path / "cache"))
    net = tc_resnet8()
    (tmp_path / "net.onnx").write_bytes(to_onnx(net))
    target = "c -mcpu=cortex-m4f -runner=qemu-mps2-an386 -accelerators=ultra_trail"
    with uma.build(tmp_path / "net.onnx", target, plugins=PLUGINS).session() as session:
        for frame in net.inputs(2, 1):
            (made,) = session.run(frame).values()
            np.testing.assert_array_equal(made, reference(net, frame)[0].reshape(made.shape))
        assert session.counters()["ultra_trail"]["cycles"] == 24030
