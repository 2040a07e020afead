"""`pyflame optimize`: finds settings with which a program is faster, one change after the other, and verifies each.

candidates.py  the changes that are tried, and what each should gain
observe.py     in the program's process: records what the program reads and what its gradients are
resources.py   in the program's process: waits for loaders, batches of a step, memory, what recomputation saves and costs
gate.py        compares two records
machine.py     baseline, profile, one change at a time, composition
journal.py     optimize.jsonl, from which a session goes on
page.py        optimize.html
suggestions.py changes of the program's text, as a diff to look at
"""
