"""Where programs find the base class of objects that a checkpoint asks for their state."""


class Stateful:
    """An object with state_dict() and load_state_dict(state_dict), as a value of the dict that checkpoint.save and checkpoint.load take. Being of this class is not needed."""

    def state_dict(self):
        """The state: a dict as checkpoint.save takes it."""
        raise NotImplementedError(f"{type(self).__name__}: state_dict is not implemented; expected a method that returns the state")

    def load_state_dict(self, state_dict):
        """Takes the state."""
        raise NotImplementedError(f"{type(self).__name__}: load_state_dict is not implemented; expected a method that takes the state")


__all__ = ["Stateful"]
