"""pf.memory.estimate: what a model needs, from a plan on the null device."""
import dataclasses

from .. import _C, optim
from .._grad_mode import enable_grad, no_grad
from . import _cards, _null, _text

_PARTS = ("weights", "gradients", "optimizer", "inputs", "activations")


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What a step needs, in bytes. print() shows a table.

    weights: parameters and buffers. gradients: of the parameters. optimizer: its state. inputs: the batch.
    activations: what the forward pass keeps for the backward pass; without training, what it returns.
    peak: the most that is allocated at one time in a step. It can be less than the sum of the parts, because gradients come while activations go;
    and more, because of values in between.
    reserved: what a GPU's allocator takes from the driver for it: the peak, and what is lost to the sizes of blocks.
    parameters: how many numbers the parameters have.

    It is a result, and its fields are not checked. Only a missing or unknown field is an error, a TypeError.
    """

    parameters: int
    weights: int
    gradients: int
    optimizer: int
    inputs: int
    activations: int
    peak: int
    reserved: int

    def fits(self, where, fraction=0.9):
        """Whether `reserved` is at most this fraction of the memory of a GPU of the table ('MI300X'), of a device that is here ('rocm:0', 'cpu'), or
        of so many bytes (24 << 30, '24GiB')."""
        return self.reserved <= fraction * _cards.memory_of(where)

    def __str__(self):
        rows = [[name, _text.size(getattr(self, name))] for name in _PARTS + ("peak", "reserved")]
        return f"{self.parameters:,} parameters\n" + _text.table(rows, right=(1,))


def _optimizer(wanted, parameters):
    """An optimizer of a name, of a class, or of a function of the parameters."""
    if callable(wanted):
        return wanted(parameters)
    names = {n.lower(): c for n, c in vars(optim).items() if isinstance(c, type) and issubclass(c, optim.Optimizer) and c is not optim.Optimizer}
    if not isinstance(wanted, str) or wanted.lower() not in names:
        raise ValueError(f"estimate: no such optimizer; got {wanted!r}; expected None, a function of the parameters, or one of {', '.join(sorted(names))}")
    kind = names[wanted.lower()]
    return kind(parameters, lr=1e-3)


def _sum(output):
    """A loss of any output: the sum of all its numbers that have a gradient."""
    parts = [t.sum() for t in _null.tensors_in(output) if t.requires_grad]
    if not parts:
        raise ValueError("estimate: no output has a gradient; hint: optimizer=None plans the forward pass alone")
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


class _Plan:
    """The model and its batch on the null device."""

    def __init__(self, model, batch, loss):
        self.start = _null.live()
        self.model = _null.made(model)
        self.tensors = list(self.model.parameters()) + list(self.model.buffers())
        self.batch, self.keywords = self._arguments(_null.tensors(batch))
        self.loss = loss
        if loss is not None and not self.batch:
            raise ValueError("estimate: a loss needs a target; got batch without one; expected batch=(inputs, ..., target)")

    @staticmethod
    def _arguments(batch):
        if isinstance(batch, dict):
            return [], batch
        return (list(batch), {}) if isinstance(batch, (tuple, list)) else ([batch], {})

    def forward(self):
        if self.loss is None:
            return self.model(*self.batch, **self.keywords)
        return self.loss(self.model(*self.batch[:-1], **self.keywords), self.batch[-1])

    def kept(self):
        """Bytes that are live after the forward pass and were not before."""
        before = _null.live()
        output = self.forward()
        after = _null.live()
        del output
        return after - before

    def step(self, optimizer):
        optimizer.zero_grad()
        result = self.forward()
        (result if self.loss is not None else _sum(result)).backward()
        gradients = _null.nbytes(p.grad for p in self.model.parameters() if p.requires_grad)
        optimizer.step()
        return gradients


def _peak(run):
    """(bytes allocated at most, bytes reserved at most) while a function runs."""
    _null.empty()
    _C.reset_peak_memory(_null.DEVICE)
    run()
    _C.synchronize()
    s = _C.memory_stats(_null.DEVICE)
    return s["peak_allocated"], s["peak_reserved"]


def _training(plan, optimizer):
    with enable_grad():
        kept = plan.kept()
        adam = _optimizer(optimizer, list(plan.model.parameters()))
        before = _null.live()
        gradients = plan.step(adam)
        adam.zero_grad()
        state = max(0, _null.live() - before)
        peak = _peak(lambda: plan.step(adam))  # the second step: the optimizer's state is there from its beginning
    return gradients, state, kept, peak


def _inference(plan):
    with no_grad():
        return 0, 0, plan.kept(), _peak(plan.forward)


def estimate(model, batch, *, loss=None, optimizer="adamw"):
    """Plans a step of a model on the null device and returns an Estimate. No memory is allocated, nothing is computed, and the model is not changed.

    model: a Module on any device, or a function that returns one; it is called on the null device, so that the model may be larger than the machine.
    batch: the model's argument, a tuple of them, a dict of them by name, or a function that returns one of these. Shapes and dtypes count.
    loss: a function of (output, target). The target is then the last item of `batch`. None: the sum of the outputs.
    optimizer: the name of one ('adamw', 'sgd', ...), a function of the list of parameters, or None: the forward pass alone, without gradients.

    Mixed precision (pf.autocast) and recomputation (enable_gradient_checkpointing) count as they are set. The workspaces of libraries are not planned.
    TypeError or ValueError for arguments that are none; errors of the model itself are raised as they are."""
    with _null.planning(_null.device_of(model)):
        plan = _Plan(model, batch, loss)
        gradients, state, kept, (peak, reserved) = _inference(plan) if optimizer is None else _training(plan, optimizer)
        result = Estimate(
            parameters=sum(p.numel() for p in plan.model.parameters()), weights=_null.nbytes(plan.tensors), gradients=gradients, optimizer=state,
            inputs=_null.nbytes(_null.tensors_in([plan.batch, plan.keywords])), activations=kept, peak=peak - plan.start, reserved=reserved - plan.start,
        )  # fmt: skip
        del plan
    return result
