// From the first sign-in to a verified key, without curl.

import { URL_OF, accessible, assert, check, go, tabTo, v2, visitor } from "../support.mjs";

/** The clicks and fields to a verified key. A change that needs more makes the first minutes worse. */
const ACTS_MAX = 6;

export async function run(story) {
  const page = story.page;
  const at = (rest) => `/dashboard/${story.workspace}${rest}`;
  let rootKey, key;

  await check(`the first key is verified after ${ACTS_MAX} clicks and fields`, async () => {
    await go(page, at(""));
    let acts = 0;
    const click = async (role, name) => {
      acts += 1;
      await page.getByRole(role, { name }).click();
    };
    await page.getByText("0 of 4 steps done").waitFor();
    await click("link", "Start with the first steps");
    await page.getByRole("heading", { name: "Get started", level: 1 }).waitFor();
    await accessible(page);
    acts += 1;
    await page.getByLabel("Name").fill("first steps");
    await click("button", "Create API");
    await page.getByText("API created.").waitFor();
    await click("button", "Create root key");
    await page.getByText("This root key is shown only once.").waitFor();
    await accessible(page);
    rootKey = (await page.locator("#secret").textContent()).trim();
    await click("button", /^Create key$/);
    await page.getByText("This key is shown only once.").waitFor();
    await accessible(page);
    key = (await page.locator("#secret").textContent()).trim();
    await click("button", "Verify now");
    await page.locator("#outcome").getByText("VALID", { exact: true }).waitFor();
    assert.ok(acts <= ACTS_MAX, `${acts} clicks and fields`);
    await accessible(page);
  });

  await check("the event of the verification appears by itself", async () => {
    await page.getByRole("row").filter({ hasText: "New" }).getByText("VALID").waitFor();
    await accessible(page);
    await go(page, at(""));
    assert.equal(await page.getByText("steps done").count(), 0);
  });

  await check("the root key verifies the key, and the snippets contain the address", async () => {
    const verified = await v2(rootKey, "keys.verifyKey", { key });
    assert.equal(verified.data?.code, "VALID", JSON.stringify(verified));
    await go(page, at("/get-started"));
    await page.getByText("All steps are done.").waitFor();
    for (const [language, text] of [
      ["TypeScript", "serverURL:"],
      ["Python", "server_url="],
      ["Go", "WithServerURL("],
      ["curl", "curl "],
      ["Gateway", "auth_request"],
    ]) {
      await page.getByLabel(language, { exact: true }).and(page.getByRole("radio")).check();
      const shown = await page.getByRole("region", { name: language, exact: true }).textContent();
      assert.ok(shown.includes(text) && shown.includes("://"), shown);
      assert.equal(await page.locator(".snippet:visible").count(), 1);
      await accessible(page);
    }
  });

  await check("a key is verified with the keyboard alone", async () => {
    await go(page, at("/get-started"));
    await tabTo(page, "Key");
    await page.keyboard.type(`${key}x`);
    await tabTo(page, "Verify now");
    await page.keyboard.press("Enter");
    await page.locator("#outcome").getByText("NOT_FOUND", { exact: true }).waitFor();
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Verify now");
    await accessible(page);
  });

  await check("the page verifies nothing again when it is loaded again", async () => {
    await page.reload();
    await page.getByRole("button", { name: "Verify now" }).waitFor();
    assert.equal(await page.locator("#outcome").count(), 0);
  });

  await check("a key that is too long is rejected beside its field", async () => {
    page.expected = [422];
    const field = page.getByLabel("Key", { exact: true });
    await field.evaluate((input) => input.removeAttribute("maxlength"));
    await field.fill("x".repeat(513));
    await page.getByRole("button", { name: "Verify now" }).click();
    await page.locator("#step-verify").getByRole("alert").waitFor();
    assert.equal(await field.getAttribute("aria-invalid"), "true");
    await accessible(page);
    page.expected = [];
  });

  await check("a verification without a response is not sent again, and the page says so", async () => {
    let sent = 0;
    await page.route("**/get-started/verify", (route) => ((sent += 1), route.abort()));
    page.expected = ["htmx:sendError", "net::ERR_FAILED"];
    await go(page, at("/get-started"));
    await page.getByLabel("Key", { exact: true }).fill(key);
    for (let tries = 1; tries <= 2; tries += 1) {
      await page.getByRole("button", { name: "Verify now" }).click();
      await page.getByRole("alert").getByText("The server did not respond.").waitFor();
      while (sent < tries) await page.waitForTimeout(50);
    }
    assert.equal(sent, 2);
    await accessible(page);
    await page.unroute("**/get-started/verify");
    await page.route("**/get-started/verify", (route) => route.fulfill({ status: 502, body: "Bad Gateway" }));
    page.expected.push(502);
    await go(page, at("/get-started"));
    await page.getByLabel("Key", { exact: true }).fill(key);
    await page.getByRole("button", { name: "Verify now" }).click();
    await page.getByRole("alert").getByText("The server did not respond.").waitFor();
    await page.getByRole("heading", { name: "Get started" }).waitFor();
    await page.unroute("**/get-started/verify");
    await page.getByRole("button", { name: "Verify now" }).click();
    await page.locator("#outcome").getByText("VALID", { exact: true }).waitFor();
    assert.equal(await page.getByRole("alert").count(), 0);
    page.expected = [];
  });

  await check("an error of a verification is shown as a page, and the form is sent once", async () => {
    const reader = await visitor({ storageState: await page.context().storageState() });
    await go(reader, at("/get-started"));
    reader.expected = [400];
    await reader.context().clearCookies();
    let sent = 0;
    reader.on("request", (request) => (sent += Number(request.method() === "POST")));
    await reader.getByLabel("Key", { exact: true }).fill(key);
    await reader.getByRole("button", { name: "Verify now" }).click();
    await reader.getByRole("heading", { name: "Cookies required" }).waitFor();
    assert.deepEqual([sent, await reader.locator("main").count()], [1, 1]);
    await reader.context().close();
  });

  await check("the address of the server leads a browser to the dashboard", async () => {
    await page.goto(URL_OF);
    assert.equal(new URL(page.url()).pathname, at(""));
  });
}
