"""The table of rules: each is a function that looks at one place of a program, and reports it or not. doctor/rules.json says what a rule is,
why, and where that is written; tests/doctor/test_lint.py has its cases."""
RULES = {}


def rule(name):
    """Enters a function in the table. A rule may have several, one for each form of the mistake."""
    def enter(function):
        RULES.setdefault(name, []).append(function)
        return function
    return enter
