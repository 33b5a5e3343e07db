"""TeX to MathML. The library copies what it is given into its markup, so the result is read back as XML and only what
MathML Core knows is kept: what comes out can stand in any page."""

from __future__ import annotations

import re
from functools import lru_cache
from xml.etree import ElementTree

LONGEST = 4000  # characters of one formula
_NAMESPACE = "http://www.w3.org/1998/Math/MathML"
_TAGS = frozenset(
    re.split(
        r"\s+",
        """math mrow mi mn mo ms mtext mspace mfrac msqrt mroot mstyle merror mpadded mphantom msub msup msubsup munder
        mover munderover mmultiscripts mprescripts none mtable mtr mtd menclose""",
    )
)
_ATTRIBUTES = frozenset(
    re.split(
        r"\s+",
        """display displaystyle scriptlevel mathvariant mathcolor mathbackground mathsize accent accentunder fence form
        largeop lspace rspace maxsize minsize movablelimits separator stretchy symmetric width height depth voffset
        linethickness columnalign rowalign columnspacing rowspacing columnlines rowlines columnspan rowspan notation
        dir""",
    )
)
_VALUE = re.compile(r"[\w#.,% +-]{0,100}\Z")


class NotTex(ValueError):
    """This is no formula that can be drawn."""


@lru_cache(1024)
def mathml(tex: str, display: bool) -> str:
    """The `<math>` element for `tex`. Raises `NotTex`."""
    from latex2mathml.converter import convert  # at first use: few pages have formulas

    if len(tex) > LONGEST:
        raise NotTex(f"a formula has at most {LONGEST} characters")
    try:
        root = ElementTree.fromstring(convert(tex, display="block" if display else "inline"))
    except RecursionError:
        raise NotTex("the formula is nested too deeply") from None
    except Exception as problem:  # the library has many ways to fail on what is no TeX
        raise NotTex(f"this cannot be read as TeX: {problem}"[:300]) from problem
    ElementTree.register_namespace("", _NAMESPACE)
    return ElementTree.tostring(_kept(root), encoding="unicode")


def _kept(element: ElementTree.Element) -> ElementTree.Element:
    name = element.tag.removeprefix("{" + _NAMESPACE + "}")
    kept = ElementTree.Element(f"{{{_NAMESPACE}}}{name if name in _TAGS else 'mtext'}")
    kept.text, kept.tail = element.text, element.tail
    kept.attrib = {key: value for key, value in element.items() if key in _ATTRIBUTES and _VALUE.match(value)}
    kept.extend(_kept(child) for child in element)
    return kept
