"""Modules whose forward pass is changed on the object: its class becomes a subclass of what it was."""


def wrap(module, prefix, mixin, forward, **attributes):
    """module becomes an object of a class <prefix><name of its class>, which also derives from mixin. Its forward(module, *args, **kwargs) is
    forward(module, inner, args, kwargs), where inner is the one it had."""
    before = type(module)

    def changed(self, *args, **kwargs):
        return forward(self, super(made, self).forward, args, kwargs)

    # the class before comes first: Python changes the class of an object only if the layout of the new class's first base is its own
    made = type(prefix + before.__name__, (before, mixin), {"forward": changed, "__module__": before.__module__, "__doc__": before.__doc__, **attributes})
    module.__class__ = made
    return module
