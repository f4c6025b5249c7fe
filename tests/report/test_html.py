"""The page for people: everything is on it, nothing comes from elsewhere, and no name can act."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_samples import EMPTY, FULL, ILLUSTRATED, LATENCY, LOGITS, NOT_VERIFIED, PICTURE, VERDICT

from normfuse.errors import UsageError
from normfuse.norms.refusal import REASONS
from normfuse.parity.verdict import ModelVerdict, SiteVerdict
from normfuse.report import html
from normfuse.report.advice import ADVICE
from normfuse.report.evidence import latency_view, standing
from normfuse.report.figures import MOST_SITES, nearest_to_bound, parity_plot
from normfuse.report.fleet import Outcome
from normfuse.report.page_text import page_html
from normfuse.report.record import Report, Site

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{7*7}}\x1b[31m\u202e"


class Page(HTMLParser):
    """Text, elements and identifiers of a page; fails on elements that are not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(text)
        assert not self._open
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "hr", "img"):
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def values(self, *names: str) -> list[str]:
        return [value for _, a in self.elements for name in names if (value := a.get(name)) is not None]


def page(*reports: Report | Outcome) -> Page:
    outcomes = [r if isinstance(r, Outcome) else Outcome(r.model, r) for r in reports]
    return Page(html.to_html(outcomes))


def test_the_page_tells_it_all() -> None:
    text = page(ILLUSTRATED).text
    for words in (
        "model.onnx",
        "target ort-cpu, cpu, opset 13 → 17",
        "Verified: it computes the same",
        "On cpu, 2 inputs; worst: 'logits'",
        "Written to model.fused.onnx",
        "Warning: a BatchNormalization is in training mode",
        "4 of 7 sites rewritten",
        "512 → 214 nodes",
        "2.00 × as fast on cpu",
        "4.1 MB was 4.2 MB",
        "LayerNorm → LayerNormalization fused before, 7 nodes",
        "The result is 2.00 times as fast (95 % interval 1.900 to 2.100)",
        "of what its norms cost, 83% is gone",
        "before 2.00 ms after 1.00 ms without norms 800 µs",
        "1 site came closer to the exact result",
        "1.0e-06 1.0e-07 1.0e-05",
        "logits float32 agrees 3.1e-07",
        "B=2 S=7, normal, seed 0",
        "2 sites, RMSNorm: eps-outside-sqrt",
        "rms1 : epsilon 1e-6 stands behind the root",
        "1 site, LayerNorm fused, its affine left outside: affine-not-constant",
        "normfuse model.onnx --report r.html",
        "S=7",
        "onnx 1.23.2",
    ):
        assert words in text, words


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (EMPTY, "Nothing to rewrite"),
        (EMPTY, "Nothing that is a normalization"),
        (NOT_VERIFIED, "Not verified"),
        (
            replace(FULL, parity=replace(VERDICT, result="failed", detail="NaN")),
            "It does not compute the same",
        ),
        (replace(FULL, parity=ModelVerdict("inconclusive", "cpu")), "Inconclusive"),
        (replace(FULL, written=None), "No model was written"),
        (replace(FULL, outlook=True), "4 sites to rewrite"),
        (replace(FULL, outlook=True), "2 would be fused"),
        (replace(FULL, foreign=("my.Foo",)), "not all of the ONNX standard: my.Foo"),
        (FULL, "Not measured. normfuse bench ORIGINAL RESULT"),
        (replace(FULL, latency=replace(LATENCY, why_not="one run takes 9.0 s")), "one run takes 9.0 s"),
    ],
)
def test_the_page_says_what_is_missing(report: Report, words: str) -> None:
    assert words in page(report).text


def test_every_provider_has_its_line() -> None:
    report = replace(FULL, verdicts=(VERDICT, replace(VERDICT, provider="cuda")))
    assert "On cuda, 2 inputs" in page(report).text


def test_equal_sites_share_a_card() -> None:
    many = [replace(FULL.sites[0], anchor=f"layer{k}", picture=0) for k in range(12)]
    other = replace(FULL.sites[0], anchor="other", picture=1)
    alike = replace(PICTURE, after=())
    found = page(replace(ILLUSTRATED, sites=(*many, other), pictures=(PICTURE, alike)))
    assert "LayerNorm → LayerNormalization × 12" in found.text
    assert [a.get("class") for _, a in found.elements].count("card") == 2
    assert found.text.count("layer11") >= 1


def test_what_was_taken_back_is_drawn_first_and_rewrites_before_the_rest() -> None:
    statuses = ("left", "guarded", "guarded", "fused", "rolled-back")
    sites = [replace(FULL.sites[0], status=s, anchor=f"n{k}", picture=0) for k, s in enumerate(statuses)]
    found = page(replace(ILLUSTRATED, sites=tuple(sites)))
    shown = [a["class"] for _, a in found.elements if (a.get("class") or "").startswith("status ")]
    assert shown[-4:] == ["status rolled-back", "status fused", "status guarded", "status left"]


@pytest.mark.parametrize("code", REASONS)
def test_each_reason_is_explained_on_the_spot(code: str) -> None:
    found = page(replace(FULL, sites=(Site("LayerNorm", "left", "ln", "y", reason=code),)))
    assert REASONS[code][1:] in found.text
    assert ADVICE.get(code, "") in found.text
    assert len(str(page_html(code))) > 200  # the page of the code, not only its sentence


def everywhere_evil() -> Outcome:
    site = Site(EVIL, "fused", EVIL, EVIL, EVIL, EVIL, EVIL, detail=EVIL, picture=0,
                parity=SiteVerdict("improved", 1e-6, 1e-7, 1e-5, EVIL))  # fmt: skip
    left = Site(EVIL, "left", EVIL, EVIL, reason="eps-outside-sqrt", detail=EVIL, spelling=EVIL)
    box = replace(PICTURE.before[1], label=EVIL, operator=EVIL, detail=EVIL)
    verdict = replace(
        VERDICT, outputs=(replace(LOGITS, name=EVIL, detail=EVIL),), inputs=(EVIL,), notes=(EVIL,)
    )
    report = replace(
        ILLUSTRATED,
        model=EVIL,
        sites=(site, left),
        pictures=(replace(PICTURE, before=(PICTURE.before[0], box)),),
        parity=verdict,
        warnings=(EVIL,),
        written=EVIL,
        depends_on=(EVIL,),
        foreign=(EVIL,),
        latency=replace(LATENCY, inputs=EVIL),
        repeat=replace(ILLUSTRATED.repeat, call=EVIL, dims={EVIL: 1}),
    )
    return Outcome(EVIL, report, EVIL, EVIL, 1)


def test_names_cannot_act() -> None:
    evil = everywhere_evil()
    plain = replace(evil, report=None)
    found = page(evil, plain)
    assert found.text.count("<script>alert(1)</script>") > 10
    assert "49" not in found.text
    assert not {"script", "img", "iframe", "object", "link", "base", "form"} & {t for t, _ in found.elements}
    assert not [name for _, a in found.elements for name in a if name.startswith("on")]
    assert "\x1b" not in found.text
    assert "\u202e" not in found.text


def test_nothing_comes_from_elsewhere() -> None:
    found = page(ILLUSTRATED, FULL)
    assert all(value.startswith("#") for value in found.values("href", "src", "xlink:href", "srcset"))
    text = html.to_html([Outcome("m", ILLUSTRATED)])
    assert not re.findall(r"@import|url\((?!#)", text)
    policy = next(a["content"] for t, a in found.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_links_within_the_page_lead_somewhere_and_names_are_given_once() -> None:
    found = page(ILLUSTRATED, FULL)
    names = Counter(found.values("id"))
    assert max(names.values()) == 1
    assert {href[1:] for href in found.values("href", "xlink:href")} <= names.keys()


def test_a_run_of_several_models_has_one_page() -> None:
    broken = Outcome("b.onnx", error="b.onnx is no ONNX model", hint="give another", exit_code=3)
    text = page(Outcome("a.onnx", FULL), broken).text
    for words in ("normfuse: 2 models", "b.onnx Failed", "b.onnx is no ONNX model", "give another"):
        assert words in text


def test_thousands_of_sites_stay_readable() -> None:
    sites = [replace(FULL.sites[0], anchor=f"ln{k}", output=f"y{k}", picture=k) for k in range(2000)]
    report = replace(ILLUSTRATED, sites=tuple(sites), pictures=tuple(replace(PICTURE) for _ in sites))
    written = html.to_html([Outcome("m", report)])
    text = Page(written).text
    assert len(written) < 2_500_000
    assert "1,960 more distinct sites are not drawn" in text
    assert "All sites, the first 1,000 of 2,000" in text
    assert f"Plotted are the {MOST_SITES}" in text


def verdicts(*errors: float) -> list[tuple[int, SiteVerdict]]:
    return [(k + 1, SiteVerdict("equal", 1e-7, error, 1e-6)) for k, error in enumerate(errors)]


@pytest.mark.parametrize("errors", [(0.0,), (float("inf"), 1e-7), (float("nan"), 0.0), (1e-300, 1e300)])
def test_any_error_can_be_plotted(errors: Sequence[float]) -> None:
    drawn = parity_plot(verdicts(*errors), 5.0, "a")
    assert drawn.startswith("<svg")
    assert "nan" not in drawn.lower()
    assert not re.search(r"#0102\d\d", drawn)
    assert "var(--after)" in drawn


def test_a_plot_that_would_be_too_full_shows_the_worst() -> None:
    errors = [1e-9] * (2 * MOST_SITES)
    errors[7] = 9e-7
    shown = nearest_to_bound(verdicts(*errors))
    assert len(shown) == MOST_SITES
    assert 8 in [number for number, _ in shown]
    assert [number for number, _ in shown] == sorted(number for number, _ in shown)


@pytest.mark.parametrize(
    ("low", "high", "noise", "said"),
    [
        (1.1, 1.2, 1.02, "faster"),
        (1.01, 1.2, 1.02, "same"),
        (0.8, 0.9, 1.02, "slower"),
        (0.99, 1.0, 1.02, "same"),
    ],
)
def test_a_difference_within_the_noise_is_none(low: float, high: float, noise: float, said: str) -> None:
    latency = replace(LATENCY, faster=(low + high) / 2, low=low, high=high, noise=noise)
    assert standing(latency) == said
    view = latency_view(replace(FULL, latency=latency))
    assert view is not None
    assert ("No difference" in view["sentence"]) == (said == "same")
    assert ("is gone" in view["sentence"]) == (said == "faster")


def test_what_draws_the_page_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "find_spec", lambda name: None if name == "matplotlib" else object())
    with pytest.raises(UsageError, match="an HTML report needs matplotlib") as caught:
        html.to_html([Outcome("m", FULL)])
    assert caught.value.hint == "pip install 'normfuse[report]'"


def test_the_page_is_in_the_package() -> None:
    folder = Path(html.__file__).parent / "page"
    assert {path.name for path in folder.iterdir()} == {"report.css", "report.html.j2"}
