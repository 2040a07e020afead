"""Training as a class: pf.train.Trainer has the loop, checkpoints and logging, and a subclass changes the steps that differ.

    trainer = pf.train.Trainer(model, train_set, validation_set, loss=nn.functional.mse_loss, epochs=10, out="run")
    trainer.fit()
"""
from .. import _refused
from ._trainer import Trainer

__all__ = ["Trainer"]

_refused.unknown(globals())
