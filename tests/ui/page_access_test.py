"""Whether people with weak eyes, without a mouse, or with a screen reader can use the page of `runner ui`.

    page_access_test.py RUNNER [unittest's arguments]

Contrast is computed as WCAG 2.1 defines it (1.4.3 for text, 1.4.11 for what is drawn): for the text of each element against the colours
behind it, with their opacity.
"""
import unittest

from in_chromium import READY, InChromium

# [[contrast, least contrast, text, place], ...] of all texts on the screen.
TEXTS = """(() => {
  const parse = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return text.startsWith('color(srgb') ? [n[0] * 255, n[1] * 255, n[2] * 255, n[3] ?? 1] : [n[0], n[1], n[2], n[3] ?? 1]; };
  const over = ([r, g, b, a], under) => [r * a + under[0] * (1 - a), g * a + under[1] * (1 - a), b * a + under[2] * (1 - a), 1];
  const luminance = (colour) => { const [r, g, b] = colour.slice(0, 3).map((one) => (one /= 255) <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ratio = (a, b) => { const [light, dark] = [luminance(a), luminance(b)].sort((x, y) => y - x); return (light + 0.05) / (dark + 0.05); };
  const behind = (element) => { const chain = []; for (let e = element; e; e = e.parentElement) chain.push(e); return chain.reverse().reduce((under, e) => over(parse(getComputedStyle(e).backgroundColor), under), [255, 255, 255, 1]); };
  const list = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, e = node.parentElement;
    if (!node.textContent.trim() || !e.checkVisibility({ visibilityProperty: true, opacityProperty: true }) || e.closest('.sr, .skip, script, style, noscript, option, [aria-hidden=true], :disabled')) continue;
    const style = getComputedStyle(e), back = behind(e);
    let opacity = 1;
    for (let p = e; p; p = p.parentElement) opacity *= Number(getComputedStyle(p).opacity);
    const colour = parse(style.color), size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    list.push([ratio(over([colour[0], colour[1], colour[2], colour[3] * opacity], back), back), large ? 3 : 4.5, node.textContent.trim().slice(0, 40), e.outerHTML.slice(0, 90)]);
  }
  for (const e of document.querySelectorAll('input')) if (e.placeholder && e.checkVisibility()) list.push([ratio(parse(getComputedStyle(e, '::placeholder').color), behind(e)), 4.5, e.placeholder, 'placeholder']);
  return list;
})()"""

# [[contrast with the page, name]]: the colours of curves and of statuses.
DRAWN = """(() => {
  const style = getComputedStyle(document.documentElement), of = (name) => style.getPropertyValue('--' + name).trim();
  const luminance = (hex) => { const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255).map((one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  return ['c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6', 'c7', 'running', 'finished', 'failed', 'warn', 'idle', 'accent'].map((name) => { const [light, dark] = [luminance(of(name)), luminance(of('bg'))].sort((x, y) => y - x); return [(light + 0.05) / (dark + 0.05), name]; });
})()"""

# What can be reached with Tab: whether the focus can be seen, and the name for screen readers.
FOCUSED = """(() => { const e = document.activeElement, style = getComputedStyle(e), box = e.getBoundingClientRect();
  return { tag: e.tagName, html: e.outerHTML.slice(0, 100), inside: box.width > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
    seen: (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2) || style.boxShadow !== 'none' }; })()"""


class Contrast(InChromium):
    def test_all_text_has_contrast(self):
        for name in READY:
            for dark in (False, True):
                with self.subTest(name, dark=dark):
                    page = self.view(name, dark=dark, height=2400)
                    texts = page.run(TEXTS)
                    self.assertGreater(len(texts), 20)
                    self.assertEqual([one for one in texts if one[0] < one[1]], [])
                    page.close()

    def test_curves_and_statuses_have_contrast(self):
        for dark in (False, True):
            for contrast, name in self.page("/", dark=dark).run(DRAWN):
                self.assertGreaterEqual(contrast, 3, f"--{name} {'dark' if dark else 'light'}")


class Keyboard(InChromium):
    def test_tab_reaches_everything_in_order_and_the_focus_is_seen(self):
        for name in ("runs", "compare", "run", "logs", "plan", "sweep"):
            with self.subTest(name):
                page = self.view(name)
                places = []
                for _ in range(60):
                    page.press("Tab")
                    one = page.run(FOCUSED)
                    if one["tag"] == "BODY":
                        break
                    self.assertTrue(one["inside"], f"the focus left the screen: {one['html']}")
                    self.assertTrue(one["seen"], f"the focus cannot be seen: {one['html']}")
                    places.append(one["html"])
                self.assertIn("Skip to the content", places[0])
                self.assertGreater(len(set(places)), 15)
                self.assert_clean(page)
                page.close()

    def test_a_dialog_keeps_the_focus_and_gives_it_back(self):
        page = self.view("runs")
        page.run("document.querySelector('.head button').focus()")
        page.press("Enter")
        page.wait("document.querySelector('.popover input') === document.activeElement")
        for _ in range(30):
            page.press("Tab")
            self.assertTrue(page.run("document.querySelector('.popover').contains(document.activeElement)"), "Tab left the dialog")
        page.press("Escape")
        page.wait("!document.querySelector('.popover') && document.activeElement.innerText == 'Columns'")

    def test_a_chart_is_read_and_zoomed_with_keys(self):
        page = self.view("compare")
        page.run("document.querySelector('.plot').focus()")
        page.press("ArrowRight")
        page.wait("!document.querySelector('.readout').hidden && document.querySelector('.readout b').innerText.startsWith('step')")
        before = len(page.requests)
        page.press("+")
        page.settle(0.5)
        self.assertIn("from=", [url for url in page.requests[before:] if "/curves" in url][-1])
        page.press("Escape")
        page.settle(0.5)
        self.assertNotIn("from=", [url for url in page.requests if "/curves" in url][-1])
        self.assert_clean(page)


if __name__ == "__main__":
    unittest.main()
