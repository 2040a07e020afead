"""Rules of losses."""
import pyflame as pf

from ..table import op


def _loss(log_probability, target, weight, ignore, reduction):
    """Minus the weighted log-probability of each target, reduced."""
    target = target.to(dtype=pf.int64)
    ignored = None if ignore is None else target == ignore
    index = target if ignored is None else pf.where(ignored, pf.zeros_like(target), target)
    loss = -pf.gather(log_probability, 1, index.unsqueeze(1)).squeeze(1)
    factor = pf.ones_like(loss) if weight is None else weight.index_select(0, index.reshape(-1)).reshape(tuple(index.shape))
    if ignored is not None:
        factor = pf.where(ignored, pf.zeros_like(factor), factor)
    loss = loss * factor
    if reduction == "none":
        return loss
    return loss.sum() / factor.sum() if reduction == "mean" else loss.sum()


@op("NegativeLogLikelihoodLoss")
def nll(node):
    ignore, reduction = node.attr("ignore_index"), node.attr("reduction", "mean")
    return lambda x, target, weight=None: _loss(x, target, weight, ignore, reduction)


@op("SoftmaxCrossEntropyLoss")
def cross_entropy(node):
    ignore, reduction, more = node.attr("ignore_index"), node.attr("reduction", "mean"), len(node.outputs) > 1

    def run(x, target, weight=None):
        log_probability = pf.log_softmax(x, 1)
        loss = _loss(log_probability, target, weight, ignore, reduction)
        return (loss, log_probability) if more else loss

    return run
