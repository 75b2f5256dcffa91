// Reloading, going back and clicking twice repeat nothing, and a secret is shown once.

import { URL_OF, accessible, assert, check, go, v2, visitor } from "../support.mjs";
import { EMAIL, PASSWORD } from "./beginning.mjs";

const WAS_SHOWN = "This secret was shown. It cannot be shown again.";

export async function run(story) {
  const page = story.page;
  const at = (rest) => `/dashboard/${story.workspace}${rest}`;
  const created = await v2(story.maker, "apis.createApi", { name: "shown once" });
  const api = created.data.apiId;
  const textOf = async (id) => (await page.locator(id).textContent()).trim();

  const countKeys = async () => {
    const list = await page.context().newPage();
    await list.goto(URL_OF + at(`/keys?api=${api}`));
    const count = await list.locator("tbody tr").count();
    await list.close();
    return count;
  };

  const submitNewKey = async (browser, name) => {
    await go(browser, at(`/keys/new?api=${api}`));
    await browser.getByLabel("Name", { exact: true }).first().fill(name);
    return browser.getByRole("button", { name: "Create key", exact: true }).last();
  };

  const assertNotShown = async (secret) => {
    await page.getByText(WAS_SHOWN).waitFor();
    assert.ok(!(await page.content()).includes(secret));
  };

  await check("a new key is shown once, and reloading, going back and forward make no other", async () => {
    await (await submitNewKey(page, "reloaded")).click();
    await page.getByRole("heading", { name: "Your new key" }).waitFor();
    const secret = await textOf("#secret");
    assert.ok(!page.url().includes(secret));
    assert.equal((await v2(story.maker, "keys.verifyKey", { key: secret })).data.code, "VALID");
    page.expected = [410];
    await page.reload();
    await assertNotShown(secret);
    await accessible(page);
    await page.goBack();
    await page.getByRole("heading", { name: "Create key" }).waitFor();
    await page.goForward();
    await assertNotShown(secret);
    page.expected = [];
    assert.equal(await countKeys(), 1);
    await page.getByRole("link", { name: "View key" }).click();
    await page.getByRole("heading", { name: "reloaded" }).waitFor();
  });

  await check("a page that the browser kept in memory does not show a secret again", async () => {
    await (await submitNewKey(page, "kept")).click();
    const secret = await textOf("#secret");
    page.expected = [410];
    await page.evaluate(() => dispatchEvent(new PageTransitionEvent("pageshow", { persisted: true })));
    await assertNotShown(secret);
    page.expected = [];
    assert.equal(await countKeys(), 2);
  });

  await check("reloading an invitation makes no other", async () => {
    await go(page, at("/members"));
    const pending = page.getByRole("button", { name: "Withdraw" });
    const before = await pending.count();
    await page.getByRole("button", { name: "Create invitation" }).click();
    const link = await textOf("#invitation-link");
    assert.ok(link.startsWith(`${URL_OF}/dashboard/join/`), link);
    page.expected = [410];
    await page.reload();
    await assertNotShown(link);
    await accessible(page);
    page.expected = [];
    assert.equal(await pending.count(), before + 1);
    await pending.first().click();
    await page.getByText("Invitation withdrawn.").waitFor();
  });

  await check("two clicks make one key, with a script and without", async () => {
    await (await submitNewKey(page, "twice")).dblclick();
    await page.getByRole("heading", { name: "Your new key" }).waitFor();
    assert.equal(await countKeys(), 3);
    const plain = await visitor({ javaScriptEnabled: false });
    await go(plain, "/dashboard/login");
    await plain.getByLabel("E-mail").fill(EMAIL);
    await plain.getByLabel("Password", { exact: true }).fill(PASSWORD);
    await plain.getByRole("button", { name: "Sign in" }).click();
    // The second click may come when the server has shown the key, and before the browser has.
    plain.expected = [410];
    await (await submitNewKey(plain, "twice without a script")).dblclick();
    await plain.getByRole("heading", { name: "Your new key" }).waitFor();
    assert.equal(await countKeys(), 4);
    await plain.context().close();
  });
}
