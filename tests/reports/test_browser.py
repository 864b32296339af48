"""The page in a real browser: no error, all pictures there, and no sideways scrolling on a phone."""

import html
import json
import os
import re
import shutil
import subprocess

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
PHONE, DESK = 390, 1280
PROBE = """
<body style="margin:0">
<iframe id="page" style="border:0;width:{width}px;height:900px" srcdoc="{page}"></iframe>
<script>
page.onload = () => {{
  const seen = page.contentDocument, root = seen.documentElement;
  const wide = [...seen.querySelectorAll("body *")].filter(one => !one.closest(".scroll"))
    .filter(one => one.getBoundingClientRect().right > {width} + 0.5).map(one => one.tagName);
  document.title = JSON.stringify({{
    width: root.clientWidth, scroll: root.scrollWidth, wide: wide,
    images: [...seen.images].map(one => one.complete ? one.naturalWidth : 0),
    tables: [...seen.querySelectorAll(".scroll")].map(one => one.clientWidth),
    smallest: Math.min(...[...seen.querySelectorAll("p, td, li, figcaption")]
      .map(one => parseFloat(getComputedStyle(one).fontSize)))
  }});
}};
</script></body>"""

pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs chromium")


def opened(path, folder):
    """The document after it was loaded, and what the console said."""
    assert BROWSER is not None
    flags = [
        "--headless",
        "--no-sandbox",
        "--hide-scrollbars",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--log-level=0",
    ]
    flags += [
        f"--user-data-dir={folder / 'profile'}",
        "--window-size=1400,1000",
        "--virtual-time-budget=8000",
    ]
    command = [BROWSER, *flags, "--dump-dom", path.as_uri()]
    environment = {**os.environ, "HOME": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env=environment)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_the_page_fits_and_all_pictures_are_there(source, tmp_path, width):
    probe = tmp_path / "probe.html"
    probe.write_text(PROBE.format(width=width, page=html.escape(source)), encoding="utf-8")
    document, console = opened(probe, tmp_path)
    found = re.search(r"<title>(.*?)</title>", document)
    assert found is not None, document[:500]
    seen = json.loads(html.unescape(found.group(1)))
    assert console == []
    assert seen["width"] == width and seen["scroll"] <= width and seen["wide"] == []
    assert len(seen["images"]) == 10 and all(size > 0 for size in seen["images"])
    assert all(size <= width for size in seen["tables"]) and seen["smallest"] >= 12.0


def test_the_console_stays_silent_and_would_be_heard(source, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(source, encoding="utf-8")
    assert opened(page, tmp_path)[1] == []
    broken = tmp_path / "broken.html"
    broken.write_text("<script>console.error('boom')</script><img src='data:image/png;base64,AAAA'>")
    assert any("boom" in line for line in opened(broken, tmp_path)[1])
