// Root keys are made with chosen permissions, which then hold at the interface, and are rotated and revoked.

import { accessible, assert, check, go, seen, tabTo, v2 } from "../support.mjs";

const name = "<script>alert('name')</script>";

async function secretOf(page) {
  return (await page.locator("#secret").textContent()).trim();
}

export async function run(story) {
  const page = story.page;
  const at = (rest) => `/dashboard/${story.workspace}/root-keys${rest}`;

  await check("a template and a click more make a root key that may do just that", async () => {
    await go(page, at("/new"));
    await accessible(page);
    await page.getByLabel("Name", { exact: true }).fill("the maker");
    await page.getByRole("button", { name: "Verify only" }).click();
    assert.equal(await page.getByLabel("Name", { exact: true }).inputValue(), "the maker");
    await page.getByRole("radio", { name: /^All APIs/ }).check();
    assert.equal(await page.getByLabel("Verify key").isChecked(), true);
    assert.ok(!page.url().includes("csrf"));
    await page.getByLabel("Create API", { exact: true }).check();
    await page.locator('[value="api.*.create_key"]').check();
    await accessible(page);
    await page.getByRole("button", { name: "Create root key" }).click();
    await page.getByRole("heading", { name: "Your new root key" }).waitFor();
    await accessible(page);
    story.maker = await secretOf(page);
    const made = await v2(story.maker, "apis.createApi", { name: "payments & more" });
    assert.equal(made.status, 200, JSON.stringify(made));
    story.api = made.data.apiId;
    story.otherApi = (await v2(story.maker, "apis.createApi", { name: "mail" })).data.apiId;
    const refused = await v2(story.maker, "apis.deleteApi", { apiId: story.api });
    assert.equal(refused.status, 403, JSON.stringify(refused));
  });

  await check("the copy button copies the root key", async () => {
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
    await page.getByRole("region", { name: "Root key", exact: true }).locator("..").getByRole("button").click();
    await page.getByRole("button", { name: "Copied" }).waitFor();
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), story.maker);
  });

  await check("a root key is shown only once", async () => {
    await page.getByRole("link", { name: "View root key" }).click();
    await page.getByRole("heading", { name: "the maker" }).waitFor();
    assert.ok(!(await page.content()).includes(story.maker));
    await accessible(page);
  });

  await check("a root key for one API is made by a search, and refused at another", async () => {
    await go(page, at("/new"));
    await page.getByLabel("Name", { exact: true }).fill(name);
    await page.getByRole("radio", { name: /^Specific APIs/ }).check();
    await accessible(page);
    await page.getByLabel("Search APIs by name or ID").pressSequentially("PAYM");
    await page.getByRole("button", { name: "Add payments & more" }).click();
    await page.locator(`[value="api.${story.api}.verify_key"]`).check();
    await page.getByRole("button", { name: "Create root key" }).click();
    const secret = await secretOf(page);
    const [mine, other] = await Promise.all(
      [story.api, story.otherApi].map((apiId) => v2(story.maker, "keys.createKey", { apiId })),
    );
    const verified = await v2(secret, "keys.verifyKey", { key: mine.data.key });
    assert.equal(verified.data.code, "VALID", JSON.stringify(verified));
    const refused = await v2(secret, "keys.verifyKey", { key: other.data.key });
    assert.notEqual(refused.data?.code, "VALID", JSON.stringify(refused));
    story.key = mine.data.key;
    story.single = secret;
  });

  await check("verify only asks for which APIs, and an API that is added may then be verified", async () => {
    await go(page, at("/new"));
    await page.getByRole("button", { name: "Verify only" }).click();
    await page.getByRole("radio", { name: /^All APIs/ }).waitFor();
    await page.getByRole("button", { name: "Create root key" }).click();
    // The browser asks for the answer.
    assert.ok(await page.getByRole("radio", { name: /^All APIs/ }).evaluate((radio) => radio.validity.valueMissing));
    await page.getByRole("radio", { name: /^No APIs/ }).check();
    assert.equal(await page.getByRole("group", { name: "APIs and their keys" }).isVisible(), false);
    await page.getByRole("radio", { name: /^Specific APIs/ }).check();
    await page.getByRole("button", { name: "Add payments & more" }).click();
    await page.getByRole("group", { name: "payments & more" }).waitFor();
    await accessible(page);
    await page.getByRole("button", { name: "Create root key" }).click();
    await page.getByRole("link", { name: "View root key" }).click();
    await page.getByRole("heading", { name: "Only payments & more" }).waitFor();
    assert.equal(await page.locator(".tags li").count(), 1);
    await accessible(page);
  });

  await check("a name with a script in it is shown as text", async () => {
    await go(page, at(""));
    await page.getByRole("link", { name }).waitFor();
    assert.ok(!(await page.content()).includes("<script>alert"));
  });

  await check("the list is searched while one types", async () => {
    await page.getByRole("searchbox").pressSequentially("alert(");
    await page.getByRole("link", { name: "the maker" }).waitFor({ state: "detached" });
    assert.equal(await page.locator("tbody tr").count(), 1);
    await accessible(page);
  });

  await check("rotating with a grace leaves both good, and without one only the new", async () => {
    await page.getByRole("link", { name }).click();
    await page.getByRole("link", { name: "Rotate" }).click();
    await page.getByRole("button", { name: "Rotate" }).waitFor();
    await accessible(page);
    await page.getByLabel("After 15 minutes").check();
    await page.getByRole("button", { name: "Rotate" }).click();
    const second = await secretOf(page);
    await seen();
    const verify = async (rootKey) => (await v2(rootKey, "keys.verifyKey", { key: story.key })).status;
    assert.deepEqual([await verify(story.single), await verify(second)], [200, 200]);
    await page.getByRole("link", { name: "View root key" }).click();
    await page.getByRole("link", { name: "Rotate" }).click();
    await page.getByLabel("Immediately").check();
    await page.getByRole("button", { name: "Rotate" }).click();
    story.third = await secretOf(page);
    await seen();
    assert.deepEqual([await verify(second), await verify(story.third)], [401, 200]);
  });

  await check("revoking asks first, and then nothing accepts the root key", async () => {
    await page.getByRole("link", { name: "View root key" }).click();
    await page.getByRole("link", { name: "Revoke" }).click();
    await page.getByRole("button", { name: "Revoke" }).waitFor();
    await accessible(page);
    assert.equal((await v2(story.third, "keys.verifyKey", { key: story.key })).status, 200);
    await page.getByRole("button", { name: "Revoke" }).click();
    await page.getByRole("status").waitFor();
    await seen();
    assert.equal((await v2(story.third, "keys.verifyKey", { key: story.key })).status, 401);
  });

  await check("a root key can be made with the keyboard alone", async () => {
    await go(page, at(""));
    await tabTo(page, "Create root key");
    await page.keyboard.press("Enter");
    await page.getByLabel("Name", { exact: true }).waitFor();
    await tabTo(page, "Name");
    await page.keyboard.type("by hand");
    await tabTo(page, "All APIsIncludes APIs that are created later");
    await page.keyboard.press("Space");
    await tabTo(page, "api.*.verify_key");
    await page.keyboard.press("Space");
    await tabTo(page, "Create root key");
    await page.keyboard.press("Enter");
    const secret = await secretOf(page);
    assert.equal((await v2(secret, "keys.verifyKey", { key: story.key })).data.code, "VALID");
  });
}
