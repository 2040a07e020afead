"""The host holds back the device's work, as pf.bench does to measure work that was all queued before the device began."""

HOLD = """
from pyflame import _C
x = pf.ones(8).to('rocm')
pf.synchronize()
pause = _C._pause('rocm')
y = x + 1
_C.cut()
print(pause.release(), y.tolist() == [2.0] * 8, pause.release())
pause = _C._pause('rocm')
y = x + 2
print(y.tolist() == [3.0] * 8, pause.release())  # the host waited for what it holds back
print(_C._pause('cpu'))
"""


def test_work_waits_until_it_is_released(program):
    assert program.run(HOLD).split("\n")[:3] == ["True True True", "True False", "None"]
