"""Writes src/pyflame/kernels/device/special_fits.h: polynomials that approximate the special functions of special.h.

Each fit is the interpolation of a function at Chebyshev points in 50 digits, cut where the rest no longer matters for the type, and written
as powers of a variable s between -1 and 1. The definitions are those of the Digital Library of Mathematical Functions (dlmf.nist.gov);
mpmath evaluates them.

    pip install mpmath
    python tools/gen_special.py
"""
import pathlib
import subprocess

import mpmath as mp

mp.mp.dps = 50
OUT = pathlib.Path(__file__).resolve().parent.parent / "src/pyflame/kernels/device/special_fits.h"
MOST = 64  # Chebyshev points
FITS = []


def chebyshev(f, low, high):
    """The coefficients of the interpolation of f on [low, high]."""
    angles = [mp.pi * (2 * k + 1) / (2 * MOST) for k in range(MOST)]
    values = [f((low + high) / 2 + (high - low) / 2 * mp.cos(a)) for a in angles]
    c = [2 * mp.fsum(v * mp.cos(j * a) for v, a in zip(values, angles)) / MOST for j in range(MOST)]
    c[0] /= 2
    return c, min(abs(v) for v in values)


def powers(c):
    """A sum of Chebyshev polynomials as powers of s."""
    before, now, total = [mp.mpf(1)], [mp.mpf(0), mp.mpf(1)], [mp.mpf(0)] * len(c)
    for j, a in enumerate(c):
        t = before if j == 0 else now
        for k, b in enumerate(t):
            total[k] += a * b
        if j:
            following = [mp.mpf(0), *(2 * b for b in now)]
            for k, b in enumerate(before):
                following[k] -= b
            before, now = now, following
    return total


def fit(name, f, low, high, relative=True, comment=""):
    """f on [low, high]: relative to its smallest value there, or to 1."""
    low, high = mp.mpf(low), mp.mpf(high)
    c, least = chebyshev(f, low, high)
    texts = []
    for eps in (mp.mpf(2) ** -28, mp.mpf(2) ** -57):
        rest, n = mp.mpf(0), len(c)
        while n > 1 and rest + abs(c[n - 1]) < eps * (least if relative else 1):
            n -= 1
            rest += abs(c[n])
        texts.append([mp.nstr(x, 20, min_fixed=0, max_fixed=0) for x in powers(c[:n])])
    FITS.append((name, low, high, texts, comment))
    print(f"{name:24s} {len(texts[0]):3d} {len(texts[1]):3d}")


def wrapped(call, parts):
    lines, line = [], "    return " + call
    for i, p in enumerate(parts):
        piece = p + (");" if i + 1 == len(parts) else ", ")
        if len(line) + len(piece) > 118:
            lines.append(line.rstrip())
            line = "        "
        line += piece
    return "\n".join([*lines, line])


def text():
    out = ["// Written by tools/gen_special.py: polynomials for special.h, which says how they are used.", "",
           "#if defined(PF_SPECIAL_INSIDE) || !defined(PF_SPECIAL_FITS_H_)", "#ifdef PF_SPECIAL_INSIDE", "#define PF_SPECIAL HWY_INLINE", "#else", "#define PF_SPECIAL_FITS_H_",
           "#define PF_SPECIAL PF_DEVICE", "namespace pf {", "#endif", ""]
    for name, low, high, (single, double), comment in FITS:
        scale, shift = 2 / (high - low), -(high + low) / (high - low)
        s = f"m.fma(t, m.num({mp.nstr(scale, 20)}), m.num({mp.nstr(shift, 20)}))" if (scale, shift) != (1, 0) else "t"
        out += [f"// {comment}, for t from {mp.nstr(low, 6)} to {mp.nstr(high, 6)}", "template <class M>", f"PF_SPECIAL typename M::V fit_{name}(M m, typename M::V t) {{",
                f"  const auto s = {s};", "  if constexpr (M::kSingle) {", wrapped("m.poly(s, ", single), "  } else {", wrapped("m.poly(s, ", double), "  }", "}"]
    out += ["", "#ifndef PF_SPECIAL_INSIDE", "}  // namespace pf", "#endif", "#endif", ""]
    return "\n".join(out)


def log_gamma_over(t, at):
    return mp.loggamma(at + t) / t if abs(t) > mp.mpf(10) ** -25 else mp.psi(0, at)


def inverse_erf(w):
    """The x for which -log(1 - erf(x)^2) is w, by Newton's method in y = erfc(x)."""
    if w == 0:
        return mp.mpf(0)
    y = 1 - mp.sqrt(-mp.expm1(-w))  # erfc(x)
    x = mp.sqrt(w) if w > 1 else mp.sqrt(w) * mp.sqrt(mp.pi) / 2
    for _ in range(100):
        step = (mp.erfc(x) - y) / (2 / mp.sqrt(mp.pi) * mp.exp(-x * x))
        step /= 1 - x * step if abs(x * step) < 0.5 else 1  # Halley's correction
        x += step
        if abs(step) < abs(x) * mp.mpf(10) ** -45:
            break
    return x


def with_digits(f, digits):
    def run(x):
        with mp.workdps(digits):
            return f(x)
    return run


def bessel_pair(order, part):
    """P and Q of J = sqrt(2 / (pi x)) (P cos(c) - Q sin(c)), Y = sqrt(2 / (pi x)) (P sin(c) + Q cos(c)), c = x - order pi / 2 - pi / 4."""
    def f(u):
        if u == 0:
            u = mp.mpf(10) ** -30
        x = 8 / mp.sqrt(u)
        c = x - order * mp.pi / 2 - mp.pi / 4
        j, y, k = mp.besselj(order, x), mp.bessely(order, x), mp.sqrt(mp.pi * x / 2)
        return k * (j * mp.cos(c) + y * mp.sin(c)) if part == "P" else k * (y * mp.cos(c) - j * mp.sin(c)) * x
    return f


def airy_pair(part):
    """The same for Ai(-x) and Bi(-x) with zeta = 2/3 x^1.5; u = 1 / zeta^2, from x = 4 on."""
    def f(u):
        z = 1 / mp.sqrt(u)
        x = (3 * z / 2) ** (mp.mpf(2) / 3)
        c, k = z - mp.pi / 4, mp.sqrt(mp.pi) * x ** mp.mpf("0.25")
        a, b = k * mp.airyai(-x), k * mp.airybi(-x)
        return a * mp.cos(c) - b * mp.sin(c) if part == "P" else (a * mp.sin(c) + b * mp.cos(c)) * z
    return f


def main():
    pi = mp.pi
    fit("erfcx", lambda t: mp.erfc(4 / t - 4) * mp.exp((4 / t - 4) ** 2) / t if t > mp.mpf(1) / 300 else mp.hyperu(0.5, 0.5, (4 / t - 4) ** 2) / mp.sqrt(pi) / t, 0, 1,
        comment="exp(x^2) erfc(x) / t with t = 4 / (4 + x)")
    fit("erfinv_center", with_digits(lambda w: inverse_erf(w) / mp.sqrt(-mp.expm1(-w)), 80), 0, "6.25", comment="erfinv(x) / x, t = -log(1 - x^2)")
    fit("erfinv_tail", with_digits(lambda r: inverse_erf(r * r) / r, 80), "2.5", "6.2", comment="erfinv(x) / t, t = sqrt(-log(1 - x^2))")
    fit("erfinv_far", with_digits(lambda v: inverse_erf(1 / (v * v)) * v, 1500), "0.0365", mp.mpf(1) / 6, comment="erfinv(x) t, t = 1 / sqrt(-log(1 - x^2))")
    fit("lgamma_one", lambda t: log_gamma_over(t, 1), "-0.5", "0.5", comment="log(gamma(1 + t)) / t")
    fit("lgamma_two", lambda t: log_gamma_over(t, 2), "-0.5", "1", comment="log(gamma(2 + t)) / t")
    for n in (0, 1):
        over = (lambda x: x) if n else (lambda x: mp.mpf(1))
        fit(f"i{n}e_near", lambda x: mp.besseli(n, x) * mp.exp(-x) / over(x), mp.mpf(10) ** -40, 8, comment=f"exp(-t) I{n}(t)" + (" / t" if n else ""))
        fit(f"i{n}e_far", lambda u: mp.besseli(n, 8 / u) * mp.exp(-8 / u) * mp.sqrt(8 / u), mp.mpf(10) ** -6, 1, comment=f"sqrt(x) exp(-x) I{n}(x), t = 8 / x")
        fit(f"i{n}_small", lambda q: mp.besseli(n, mp.sqrt(q)) / over(mp.sqrt(q)), mp.mpf(10) ** -40, 4, comment=f"I{n}(x)" + (" / x" if n else "") + ", t = x^2")
        if n == 0:
            fit("k0_small", lambda q: mp.besselk(0, mp.sqrt(q)) + mp.log(mp.sqrt(q) / 2) * mp.besseli(0, mp.sqrt(q)), mp.mpf(10) ** -20, 4, comment="K0(x) + log(x / 2) I0(x), t = x^2")
        else:
            fit("k1_small", lambda q: (mp.besselk(1, mp.sqrt(q)) - mp.log(mp.sqrt(q) / 2) * mp.besseli(1, mp.sqrt(q))) * mp.sqrt(q), mp.mpf(10) ** -20, 4, comment="x (K1(x) - log(x / 2) I1(x)), t = x^2")
        fit(f"k{n}e_far", lambda u: mp.besselk(n, 2 / u) * mp.exp(2 / u) * mp.sqrt(2 / u), mp.mpf(10) ** -6, 1, comment=f"sqrt(x) exp(x) K{n}(x), t = 2 / x")
        z1, z2 = mp.besseljzero(n, 1), mp.besseljzero(n, 2)
        fit(f"j{n}_near", lambda q: mp.besselj(n, mp.sqrt(q)) / over(mp.sqrt(q)) / ((q - z1 * z1) * (q - z2 * z2)), mp.mpf(10) ** -30, 64,
            comment=f"J{n}(x)" + (" / x" if n else "") + " / ((t - z1^2) (t - z2^2)) with the first zeros z1, z2; t = x^2")
        if n == 0:
            fit("y0_near", lambda q: mp.bessely(0, mp.sqrt(q)) - 2 / pi * mp.log(mp.sqrt(q)) * mp.besselj(0, mp.sqrt(q)), mp.mpf(10) ** -20, 64, False, "Y0(x) - 2 / pi log(x) J0(x), t = x^2")
        else:
            fit("y1_near", lambda q: (mp.bessely(1, mp.sqrt(q)) - 2 / pi * (mp.log(mp.sqrt(q)) * mp.besselj(1, mp.sqrt(q)) - 1 / mp.sqrt(q))) / mp.sqrt(q), mp.mpf(10) ** -15, 64, False,
                "(Y1(x) - 2 / pi (log(x) J1(x) - 1 / x)) / x, t = x^2")
        for part in "PQ":
            fit(f"bessel{n}_{part.lower()}", bessel_pair(n, part), mp.mpf(10) ** -9, 1, False, f"{part}{n}" + (" x" if part == "Q" else "") + ", t = (8 / x)^2")
    fit("airy_positive", lambda u: mp.airyai((1.5 / u) ** (mp.mpf(2) / 3)) * 2 * mp.sqrt(pi) * (1.5 / u) ** (mp.mpf(1) / 6) * mp.exp(1 / u), mp.mpf(10) ** -6, "0.54",
        comment="2 sqrt(pi) x^(1/4) exp(z) Ai(x), t = 1 / z, z = 2/3 x^(3/2)")
    fit("airy_middle", mp.airyai, "-4", "2", False, "Ai(t)")
    for part in "PQ":
        fit(f"airy_{part.lower()}", airy_pair(part), mp.mpf(10) ** -9, "0.0352", False, f"{part}" + (" z" if part == "Q" else "") + " of Ai(-x), t = 1 / z^2, z = 2/3 x^(3/2)")
    OUT.write_text(text())
    subprocess.run(["clang-format-14", "-i", OUT], check=True)


if __name__ == "__main__":
    main()
