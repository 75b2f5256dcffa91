// Everything works without JavaScript.

import { assert, check, go, v2, visitor } from "../support.mjs";
import { EMAIL, PASSWORD } from "./beginning.mjs";

export async function run(story) {
  const page = await visitor({ javaScriptEnabled: false });
  const at = (rest) => `/dashboard/${story.workspace}${rest}`;

  await check("without JavaScript one signs in", async () => {
    await go(page, "/dashboard/login");
    await page.getByLabel("E-mail").fill(EMAIL);
    await page.getByLabel("Password", { exact: true }).fill(`${PASSWORD}!`);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.waitForURL(`**${at("")}`);
  });

  await check("without JavaScript a root key for one API is searched for, made, and revoked", async () => {
    await go(page, at("/root-keys/new"));
    await page.getByLabel("Name", { exact: true }).fill("without a script");
    await page.getByRole("radio", { name: /^Specific APIs/ }).check();
    await page.getByLabel("Search APIs by name or ID").fill("payments");
    await page.getByLabel("Search APIs by name or ID").press("Enter");
    await page.getByRole("button", { name: "Add payments & more" }).click();
    assert.equal(await page.getByLabel("Name", { exact: true }).inputValue(), "without a script");
    await page.locator(`[value="api.${story.api}.verify_key"]`).check();
    await page.getByRole("button", { name: "Create root key" }).click();
    const secret = (await page.locator("#secret").textContent()).trim();
    assert.equal(await page.getByRole("button", { name: "Copy" }).count(), 0);
    assert.equal((await v2(secret, "keys.verifyKey", { key: story.key })).data.code, "VALID");
    await page.getByRole("link", { name: "View root key" }).click();
    await page.getByRole("link", { name: "Revoke" }).click();
    await page.getByRole("button", { name: "Revoke" }).click();
    await page.getByRole("status").waitFor();
  });

  await check("without JavaScript a key is verified and its event found", async () => {
    await go(page, at("/get-started"));
    await page.getByLabel("Key", { exact: true }).fill(story.key);
    await page.getByRole("button", { name: "Verify now" }).click();
    await page.locator("#outcome").getByText("VALID", { exact: true }).waitFor();
    const row = page.getByRole("row").filter({ hasText: "New" });
    for (let attempts = 0; (await row.count()) === 0; attempts += 1) {
      assert.ok(attempts < 20, "the event does not appear");
      await page.waitForTimeout(500);
      await page.getByRole("link", { name: "Refresh" }).click();
    }
    await page.getByRole("radio", { name: "Python" }).check();
    assert.ok(await page.getByRole("region", { name: "Python" }).isVisible());
    assert.ok(!(await page.getByRole("region", { name: "TypeScript" }).isVisible()));
    await go(page, at("/root-keys"));
  });

  await check("without JavaScript the list is searched", async () => {
    await page.getByRole("searchbox").fill("the maker");
    await page.getByRole("button", { name: "Search" }).click();
    await page.waitForLoadState();
    assert.equal(await page.locator("tbody tr").count(), 1);
  });

  await check("without JavaScript an identity is made with limits, one after the other", async () => {
    await go(page, at("/new-identity"));
    await page.getByLabel("External ID").fill("plain");
    for (const button of ["Add limit", "Add another", "Add another"]) {
      await page.getByRole("button", { name: button }).click();
    }
    const limits = page.getByRole("group");
    await limits.nth(0).getByLabel("Name").fill("requests");
    await limits.nth(0).getByLabel("Limit", { exact: true }).fill("7");
    await page.getByRole("button", { name: "Remove limit 2" }).click();
    await page.waitForLoadState();
    assert.equal(await limits.count(), 2);
    await page.getByLabel("External ID").press("Enter");
    await page.getByRole("row", { name: "requests 7 per minute Automatically" }).waitFor();
  });

  await check("without JavaScript a role is made and a limit simulated", async () => {
    await go(page, at("/roles/new"));
    await page.getByLabel("Name").fill("plain");
    await page.getByLabel("documents.write").check();
    await page.getByRole("button", { name: "Create role" }).click();
    await page.getByRole("link", { name: "documents.write" }).waitFor();
    await go(page, `${story.namespace}/simulator`);
    await page.getByLabel("Identifier").fill("user_1");
    await page.getByLabel("Identifier").press("Enter");
    await page.getByRole("heading", { name: "Allowed" }).waitFor();
  });

  await check("without JavaScript a policy is created with a rule, and a request tried", async () => {
    await go(page, at("/gateways/new"));
    await page.getByLabel("Name", { exact: true }).fill("plain");
    await page.getByLabel("payments & more").check();
    await page.getByRole("button", { name: "Add rule" }).click();
    await page.getByLabel("Path").fill("/plain");
    await page.getByLabel("Path").press("Enter");
    await page.getByRole("link", { name: "View policy and configurations" }).click();
    await page.getByText("proxy_pass http://keyward/gateway/plain?mode=nginx;").waitFor();
    await page.getByRole("link", { name: "Try a request" }).click();
    await page.getByLabel("Path").fill("/plain");
    await page.getByLabel("Key", { exact: true }).fill(story.key);
    await page.getByLabel("Key", { exact: true }).press("Enter");
    await page.getByRole("heading", { name: "Allowed" }).waitFor();
  });

  await check("without JavaScript the audit log is searched, and something undone", async () => {
    await go(page, at("/audit"));
    await page.getByLabel("Target").fill("plain");
    await page.getByLabel("Target").press("Enter");
    await page.getByRole("link", { name: "Role created" }).click();
    await page.getByRole("button", { name: "Undo", exact: true }).click();
    await page.getByText("This change was undone").waitFor();
  });
  await page.context().close();
}
