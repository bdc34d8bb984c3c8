"""The page of a report in headless Chromium: keys, filters, sorting, nothing asked of anybody, nothing too wide."""

from __future__ import annotations

import json
import shutil

import pytest
from report_runs import flow_run, lines_of, random_run, repair_run, talking_run

from edagym.baselines.report import build_report

pytestmark = pytest.mark.slow
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
SIZES = {"laptop": (1280, 800), "phone": (390, 844)}


@pytest.fixture(scope="module")
def page_url(tmp_path_factory):
    top = tmp_path_factory.mktemp("runs")
    runs = [random_run(top / "dice"), talking_run(top / "talk"), repair_run(top / "repair")]
    runs.append(flow_run(top / "flow", lines_of(runs[0])[0]))
    (top / "report.html").write_bytes(build_report(runs).html.encode())
    return (top / "report.html").as_uri()


@pytest.fixture(scope="module", params=SIZES)
def window(request, tmp_path_factory):
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("needs Chromium and chromedriver on the path")
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium (extra dev)")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in FLAGS.split():
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(driver))
    width, height = SIZES[request.param]
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    found.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    yield found
    found.quit()


@pytest.fixture
def browser(window, page_url):
    window.get("about:blank")
    for log in ("browser", "performance"):
        window.get_log(log)
    window.get(page_url)
    wait(window, lambda: window.execute_script("return document.documentElement.dataset.ready") == "yes")
    return window


def wait(browser, condition):
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 60).until(lambda _: condition())


def css(browser, selector):
    return browser.find_elements("css selector", selector)


def text(browser, selector):
    return browser.execute_script("return document.querySelector(arguments[0]).textContent", selector)


def press(browser, *keys):
    from selenium.webdriver import ActionChains

    ActionChains(browser).send_keys(*keys).perform()


def choose(browser, control, value):
    script = (
        "const c = document.getElementById(arguments[0]); c.value = arguments[1]; c.dispatchEvent(new Event('input'))"
    )
    browser.execute_script(script, control, value)


def rows(browser):
    return browser.execute_script("return [...document.querySelectorAll('#list tbody tr')].map(r => r.textContent)")


def click(browser, element):
    browser.execute_script("arguments[0].click()", element)


def open_attempt(browser, start):
    button = next(b for b in css(browser, "#list button.link") if b.get_attribute("aria-label").startswith(start))
    browser.execute_script("arguments[0].focus()", button)
    from selenium.webdriver.common.keys import Keys

    press(browser, Keys.ENTER)
    wait(browser, lambda: browser.execute_script("return document.getElementById('viewer').open"))
    name = button.text
    wait(browser, lambda: text(browser, "#v-title") == name)


def quiet(browser, page_url):
    """Hold the page to silence: no errors, nothing loaded but itself, no script of a run, nothing too wide."""
    assert browser.get_log("browser") == []
    asked = []
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        # The browser's own start page also shows up in this log.
        own = message["params"].get("documentURL", "").startswith(page_url)
        if own and message["method"] == "Network.requestWillBeSent":
            asked.append(message["params"]["request"]["url"])
    assert asked, "the log says what was loaded"
    assert [url for url in asked if url.partition("#")[0] != page_url and not url.startswith("data:")] == []
    assert browser.execute_script("return window.hacked") is None
    wide = "return [document.documentElement, document.getElementById('viewer')].map(e => e.scrollWidth - innerWidth)"
    assert max(browser.execute_script(wide)) <= 0


def test_viewer_steps_through_an_attempt(browser, page_url):
    from selenium.webdriver.common.keys import Keys

    open_attempt(browser, "Open L1/case_1, attempt 0, talker")
    steps = int(text(browser, "#v-at").split("/")[1])
    assert text(browser, "#v-at") == f"{steps} / {steps}"
    press(browser, Keys.HOME)
    assert text(browser, "#v-at") == f"0 / {steps}"
    drawn = []
    for i in range(1, steps + 1):
        press(browser, Keys.ARROW_RIGHT)
        assert text(browser, "#v-at") == f"{i} / {steps}"
        drawn.append(browser.execute_script("return document.querySelectorAll('#v-stage g path').length"))
        assert css(browser, "#v-step h3")
    # One shape, the check, then a fresh start from the empty scene.
    assert drawn[:3] == [1, 1, 1]
    assert drawn[-1] > 1
    press(browser, Keys.ARROW_RIGHT)
    assert text(browser, "#v-at") == f"{steps} / {steps}"
    press(browser, Keys.HOME, "c")
    assert text(browser, "#v-at") == f"2 / {steps}"
    assert "strict fail" in text(browser, "#v-step")
    press(browser, Keys.ARROW_LEFT)
    assert "</script><script>window.hacked=1</script>" in text(browser, "#v-step pre.reply")
    assert "Draw." in text(browser, "#v-step pre.prompt")
    assert "holds" in text(browser, "#v-checks")
    assert browser.execute_script("return location.hash").startswith("#attempt-")
    click(browser, css(browser, "#v-stage .zoom button")[0])
    quiet(browser, page_url)
    press(browser, Keys.ESCAPE)
    assert not browser.execute_script("return document.getElementById('viewer').open")


@pytest.mark.parametrize("start", ["Open Essential-L1/q1", "Open Area-L1/q1, attempt 1"])
def test_viewer_shows_every_family(browser, page_url, start):
    open_attempt(browser, start)
    assert css(browser, "#v-stage svg")
    if "Area" in start:
        assert "die area" in text(browser, "#v-checks")
        assert "CORE_UTILIZATION" in text(browser, "#v-checks")
    else:
        before = browser.execute_script("return document.querySelectorAll('#v-stage rect.violation').length")
        click(browser, css(browser, "#v-first")[0])
        assert before < browser.execute_script("return document.querySelectorAll('#v-stage rect.violation').length")
    quiet(browser, page_url)


def test_links_open_an_attempt_at_a_step(browser, page_url):
    browser.get(f"{page_url}#attempt-0-1")
    browser.refresh()
    wait(browser, lambda: browser.execute_script("return document.getElementById('viewer').open"))
    wait(browser, lambda: text(browser, "#v-at").startswith("1 /"))


def test_filters_and_sorting(browser, page_url):
    assert text(browser, "#count") == "15 of 15 attempts"
    choose(browser, "f-outcome", "lost")
    assert len(rows(browser)) == 1
    assert "ModelError" in rows(browser)[0]
    choose(browser, "f-outcome", "")
    choose(browser, "f-error", "ModelError")
    assert len(rows(browser)) == 1
    choose(browser, "f-error", "")
    choose(browser, "f-arm", "0")
    choose(browser, "search", "case_7 l1")
    assert text(browser, "#count") == "2 of 15 attempts"
    choose(browser, "f-suite", "DRC-Essential-L1")
    assert rows(browser) == ["No attempt fits these filters."]
    click(browser, css(browser, "#clear")[0])
    assert text(browser, "#count") == "15 of 15 attempts"
    choose(browser, "f-level", "Area-L1")
    assert len(rows(browser)) == 2
    click(browser, css(browser, "#clear")[0])
    header = next(b for b in css(browser, "#list button.sort") if b.get_attribute("data-key") == "charged")
    charged = "return [...document.querySelectorAll('#list tbody tr')].map(r => parseInt(r.children[6].textContent))"
    for order in ("ascending", "descending"):
        click(browser, header)
        assert header.find_element("xpath", "..").get_attribute("aria-sort") == order
        found = browser.execute_script(charged)
        assert found == sorted(found, reverse=order == "descending")
    quiet(browser, page_url)


def test_page_can_be_read_by_keyboard_and_ear(browser, page_url):
    # Every control has a name, every table a caption and header cells with a scope, every scrolling part takes focus.
    nameless = """return [...document.querySelectorAll('button, input, select, a')].filter(e => !(
      e.textContent.trim() || e.getAttribute('aria-label') || (e.labels && e.labels.length))).map(e => e.outerHTML)"""
    assert browser.execute_script(nameless) == []
    assert browser.execute_script("return [...document.querySelectorAll('main table')].every(t => t.caption)")
    assert browser.execute_script("return [...document.querySelectorAll('main .scroll')].every(e => e.tabIndex === 0)")
    assert browser.execute_script("return [...document.querySelectorAll('svg.fig')].every(e => e.ariaLabel)")
    for theme in ("Light", "Dark", "Auto"):
        click(browser, css(browser, "#theme")[0])
        assert text(browser, "#theme") == theme
    quiet(browser, page_url)
