// A gateway policy is created, its configuration copied, a request tried; then it is changed, rotated and deleted.

import { URL_OF, accessible, assert, check, fits, go, inOrder, seen, v2 } from "../support.mjs";

export async function run(story) {
  const page = story.page;
  const at = (rest) => `/dashboard/${story.workspace}${rest}`;
  const ask = async (secret, key) => {
    const headers = { "keyward-gateway-secret": secret, authorization: `Bearer ${key}` };
    const uri = { "x-forwarded-method": "GET", "x-forwarded-uri": "/documents/1" };
    return (await fetch(`${URL_OF}/gateway/edge`, { headers: { ...headers, ...uri } })).status;
  };
  const secretOf = async () => (await page.locator("#secret").textContent()).trim();

  await check("six clicks create a policy and copy the configuration of nginx", async () => {
    let clicks = 0;
    const click = async (target) => {
      await target.click();
      clicks += 1;
    };
    await go(page, at(""));
    await click(page.getByRole("navigation", { name: "Main" }).getByRole("link", { name: "Gateways" }));
    await accessible(page);
    await click(page.getByRole("link", { name: "Create policy" }));
    await accessible(page);
    await page.getByLabel("Name", { exact: true }).fill("edge");
    await click(page.getByLabel("payments & more"));
    await click(page.getByRole("button", { name: "Create policy" }));
    await page.getByRole("heading", { name: "Your new policy" }).waitFor();
    await accessible(page);
    story.gatewaySecret = await secretOf();
    await click(page.getByRole("link", { name: "View policy and configurations" }));
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
    await click(page.getByRole("button", { name: "Copy keyward.conf" }));
    await page.getByRole("button", { name: "Copied" }).waitFor();
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    assert.ok(copied.includes("proxy_pass http://keyward/gateway/edge?mode=nginx;"), copied);
    assert.ok(!copied.includes(story.gatewaySecret));
    assert.equal(clicks, 6);
    await accessible(page);
    story.gateway = new URL(page.url()).pathname;
    await seen();
    assert.equal(await ask(story.gatewaySecret, story.key), 200);
  });

  await check("each gateway has its configuration, within its window", async () => {
    for (const [name, part] of [
      ["HAProxy", "lua.keyward edge"], ["Caddy", "/gateway/edge"], ["Traefik", "/gateway/edge"],
      ["Envoy (HTTP)", "path_prefix: /gateway/edge"], ["Envoy (gRPC)", "keyward-policy"], ["Kubernetes", "path: /gateway/gwp_"],
    ]) {
      await page.getByRole("navigation", { name: "Gateways" }).getByRole("link", { name }).click();
      await page.getByRole("navigation", { name: "Gateways" }).locator(`[aria-current]`, { hasText: name }).waitFor();
      assert.ok((await page.locator("#configuration").textContent()).includes(part), name);
      await fits(page);
    }
    await page.getByRole("navigation", { name: "Gateways" }).getByRole("link", { name: "Caddy" }).click();
    await page.getByLabel("Address of Keyward").fill("10.1.1.1:3000, 10.1.1.2:3000");
    await page.getByRole("button", { name: "Update files" }).click();
    await page.getByText("to 10.1.1.2:3000").waitFor();
    await accessible(page);
  });

  await check("rules are added, ordered and saved", async () => {
    await go(page, story.gateway);
    await page.getByRole("link", { name: "Settings" }).click();
    await accessible(page);
    for (const button of ["Add rule", "Add another rule"]) await page.getByRole("button", { name: button }).click();
    const rule = (number) => page.getByRole("group", { name: `Rule ${number}`, exact: true });
    await rule(1).getByLabel("Path").fill("/search");
    await rule(2).getByLabel("Methods").fill("get");
    await rule(2).getByLabel("Path").fill("/documents/**");
    await page.getByRole("button", { name: "Add limit to rule 2" }).click();
    await page.getByRole("group", { name: "Limit 1 of rule 2" }).getByLabel("Name").fill("reads");
    await page.getByRole("group", { name: "Limit 1 of rule 2" }).getByLabel("Limit", { exact: true }).fill("5");
    await page.getByRole("group", { name: "Limit 1 of rule 2" }).getByLabel("Window", { exact: true }).fill("60");
    await accessible(page);
    page.expected = [422];
    await page.getByRole("button", { name: "Save changes" }).click();
    await page.getByRole("alert").getByText("must be HTTP methods in upper case").waitFor();
    assert.equal(await rule(2).getByLabel("Methods").getAttribute("aria-invalid"), "true");
    assert.equal(await rule(1).getByLabel("Methods").getAttribute("aria-invalid"), null);
    await accessible(page);
    page.expected = [];
    await rule(2).getByLabel("Methods").fill("GET");
    await page.getByRole("button", { name: "Move up rule 2" }).click();
    await page.getByRole("button", { name: "Save changes" }).click();
    await page.getByRole("status").waitFor();
    const rows = page.getByRole("region", { name: "Rules" }).locator("tbody tr");
    assert.ok((await rows.first().textContent()).includes("/documents/**"));
    await page.getByText("reads: 5 per minute").waitFor();
    await accessible(page);
  });

  await check("a request is tried, and nothing is counted", async () => {
    await page.getByRole("link", { name: "Try a request" }).click();
    await accessible(page);
    for (let times = 0; times < 6; times += 1) {
      await page.getByLabel("Path").fill("/documents/1");
      await page.getByLabel("Key", { exact: true }).fill(story.key);
      await page.getByRole("button", { name: "Try request" }).click();
      await page.getByRole("heading", { name: "Allowed VALID" }).waitFor();
    }
    assert.ok(!page.url().includes(story.key) && !(await page.content()).includes(story.key));
    await page.getByRole("region", { name: "Headers for the service" }).getByText("keyward-key-id").waitFor();
    await inOrder(page);
    await page.getByLabel("Path").fill("/nothing");
    await page.getByLabel("Key", { exact: true }).fill(story.key);
    await page.getByRole("button", { name: "Try request" }).click();
    await page.getByText("No rule of the policy matches").waitFor();
    await accessible(page);
    await seen();
    assert.equal(await ask(story.gatewaySecret, story.key), 200);
  });

  await check("rotating the secret without a grace refuses the old one", async () => {
    await go(page, story.gateway);
    await page.getByRole("link", { name: "Rotate secret" }).click();
    await accessible(page);
    await page.getByLabel("Immediately").check();
    await page.getByRole("button", { name: "Rotate" }).click();
    await page.getByRole("heading", { name: "Your new secret" }).waitFor();
    const secret = await secretOf();
    await seen();
    assert.deepEqual([await ask(story.gatewaySecret, story.key), await ask(secret, story.key)], [403, 200]);
    await accessible(page);
  });

  await check("a policy is deleted by its name, and its gateway is refused", async () => {
    await go(page, at("/gateways/new"));
    await page.getByLabel("Name", { exact: true }).fill("for-a-moment");
    await page.getByLabel("payments & more").check();
    await page.getByRole("button", { name: "Create policy" }).click();
    await page.getByRole("link", { name: "View policy and configurations" }).click();
    await page.getByRole("link", { name: "Delete" }).click();
    await accessible(page);
    page.expected = [422];
    await page.getByLabel("Enter the name").fill("for-a-momen");
    await page.getByRole("button", { name: "Delete policy" }).click();
    await page.getByRole("alert").waitFor();
    page.expected = [];
    await page.getByLabel("Enter the name").fill("for-a-moment");
    await page.getByRole("button", { name: "Delete policy" }).click();
    await page.getByRole("status").waitFor();
    assert.equal((await v2(story.all, "gateways.getPolicy", { policyId: "for-a-moment" })).status, 404);
  });
}
