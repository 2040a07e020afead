"""Names of torch.fx. There is no graph of Python code to rewrite: pf.explain() shows what a call computes."""
from . import _refused

_ADVICE = "there is no graph of Python code; change the module's children (setattr, Sequential), or look at a computation with pyflame.explain()"
Graph, GraphModule, Node, Proxy, Tracer, Interpreter, Transformer = (
    _refused.cls(f"fx.{name}", _ADVICE) for name in ("Graph", "GraphModule", "Node", "Proxy", "Tracer", "Interpreter", "Transformer")
)
wrap = _refused.identity
__getattr__ = _refused.module("fx", _ADVICE)
