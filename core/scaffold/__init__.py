"""``uma new-plugin``: a package for an accelerator to begin with, which works, written from files that do.

`names` is the naming rule, `package` chooses and fills the files of ``template/`` and writes them. These are source
files as they will be, of a plugin called ``my_npu``; what depends on more than the name stands between ``@``. One
package in ``examples/`` is what comes out, byte for byte.
"""

from __future__ import annotations

from .names import Names
from .package import DTYPES, LOWERINGS, NewPackage, new_package

__all__ = ["DTYPES", "LOWERINGS", "Names", "NewPackage", "new_package"]
