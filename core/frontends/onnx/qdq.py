"""stub"""
from ...relay.module import IRModule
def to_integers(module: IRModule):
    return module, ()
