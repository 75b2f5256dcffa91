// Identities are made with limits, found by their externalId, changed and deleted.

import { accessible, assert, check, go, seen, v2 } from "../support.mjs";

export async function run(story) {
  const page = story.page;
  const at = (rest) => `/dashboard/${story.workspace}${rest}`;
  const verdict = async () => (await v2(story.all, "keys.verifyKey", { key: story.shared })).data.code;

  await check("an identity is made with a meta and two limits", async () => {
    await go(page, at("/identities"));
    await accessible(page);
    await page.getByRole("link", { name: "Create identity" }).click();
    await accessible(page);
    await page.getByLabel("External ID").fill("user_5678");
    await page.getByLabel("Meta").fill('{"plan": "<script>alert(1)</script>"}');
    await page.getByRole("button", { name: "Add limit" }).click();
    await page.getByRole("button", { name: "Add another" }).click();
    assert.equal(await page.getByLabel("External ID").inputValue(), "user_5678");
    const limits = page.getByRole("group");
    await limits.nth(0).getByLabel("Name").fill("requests");
    await limits.nth(0).getByLabel("Limit", { exact: true }).fill("2");
    await limits.nth(0).getByLabel("Window unit of limit 1").selectOption({ label: "hours" });
    await limits.nth(1).getByLabel("Name").fill("exports");
    await limits.nth(1).getByLabel("Limit", { exact: true }).fill("5");
    await limits.nth(1).getByLabel("Apply automatically").uncheck();
    await accessible(page);
    await page.getByRole("button", { name: "Create identity" }).click();
    await page.getByRole("heading", { name: "user_5678", level: 1 }).waitFor();
    await page.getByRole("row", { name: "requests 2 per hour Automatically" }).waitFor();
    await page.getByRole("row", { name: "exports 5 per minute On request" }).waitFor();
    assert.ok(!(await page.content()).includes("<script>alert"));
    await accessible(page);
    story.identity = new URL(page.url()).pathname;
  });

  await check("its limits hold for its keys, which its page lists", async () => {
    await seen();
    const made = await v2(story.all, "keys.createKey", { apiId: story.api, externalId: "user_5678", name: "theirs" });
    story.shared = made.data.key;
    assert.deepEqual([await verdict(), await verdict(), await verdict()], ["VALID", "VALID", "RATE_LIMITED"]);
    await go(page, at("/identities/user_5678"));
    assert.equal(new URL(page.url()).pathname, story.identity);
    await page.getByRole("row", { name: "theirs" }).waitFor();
  });

  await check("what is wrong with its meta is told and kept", async () => {
    page.expected = [422];
    await page.getByRole("link", { name: "Edit" }).click();
    await accessible(page);
    await page.getByLabel("Meta").fill("{plan}");
    await page.getByRole("button", { name: "Save" }).last().click();
    await page.getByRole("alert").waitFor();
    assert.equal(await page.getByLabel("Meta").inputValue(), "{plan}");
    await accessible(page);
    page.expected = [];
  });

  await check("a limit that is left out is gone", async () => {
    await page.getByLabel("Meta").fill("{}");
    // They are by name: exports, requests.
    await page.getByRole("button", { name: "Remove limit 2" }).click();
    await page.waitForLoadState();
    assert.equal(await page.getByRole("group").count(), 1);
    await page.getByRole("button", { name: "Save" }).last().click();
    await page.getByRole("status").waitFor();
    await seen();
    assert.equal(await verdict(), "VALID");
  });

  await check("identities are searched while one types", async () => {
    await v2(story.all, "identities.createIdentity", { externalId: "another" });
    await go(page, at("/identities"));
    await page.getByRole("searchbox").pressSequentially("USER_56");
    await page.getByRole("link", { name: "another" }).waitFor({ state: "detached" });
    assert.equal(await page.locator("tbody tr").count(), 1);
    await accessible(page);
  });

  await check("deleting an identity tells what becomes of its keys", async () => {
    await v2(story.all, "identities.createIdentity", { externalId: "going" });
    await v2(story.all, "keys.createKey", { apiId: story.api, externalId: "going" });
    await go(page, at("/identities/going"));
    await page.getByRole("link", { name: "Delete" }).click();
    await page.getByText("Its 1 key remains valid").waitFor();
    await accessible(page);
    await page.getByRole("button", { name: "Delete" }).click();
    await page.getByRole("status").waitFor();
    page.expected = [404];
    assert.equal((await go(page, at("/identities/going"))).status(), 404);
    page.expected = [];
  });
}
