"""The lint of Python programs: rules (rules_*.py) over a walk that follows a program once (walk.py). Standard library only, Python 3.9 or later.

The program carries the package as one text for `python3 -c`: cmake/embed.cmake joins the modules without their imports of each other, so a name at
module level must not mean something else in another module.
"""
