"""The table of rules: each is a function that checks one place of a program and may report it. doctor/rules.json has the severity,
title, reason and source of each rule; tests/doctor/test_lint.py has its cases."""
RULES = {}


def rule(name):
    """Enters a function in the table. A rule may have several, one for each form of the mistake."""
    def enter(function):
        RULES.setdefault(name, []).append(function)
        return function
    return enter
