// Every page, in both themes and at every width: seen by axe, within its window, and kept as a picture to look at.

import { assert, check, complaints, go, inOrder, visitor } from "../support.mjs";

export async function run(story) {
  const at = (rest) => `/dashboard/${story.workspace}${rest}`;
  const key = await story.page.evaluate(async (path) => {
    const page = new DOMParser().parseFromString(await (await fetch(path)).text(), "text/html");
    return page.querySelector("tbody a").getAttribute("href");
  }, at("/root-keys"));
  const pages = {
    "sign-in": ["/dashboard/login", true],
    "no-link": ["/dashboard/join/none", true],
    overview: [at("")],
    "get-started": [at("/get-started")],
    "get-started-recent": [at(`/get-started?key=${story.orderKey}`)],
    analytics: [at("/analytics?range=hour")],
    "analytics-limits": [at("/analytics?of=limits&from=2026-03-02&until=2026-03-01")],
    logs: [at("/logs?range=hour")],
    "logs-none": [at("/logs?key=key_none&live=300")],
    "root-keys": [at("/root-keys?show=all")],
    "root-key": [key],
    "root-key-new": [at(`/root-keys/new?template=keys&find-api=m&on-api=${story.api}&permission=api.${story.api}.verify_key`)],
    "root-key-rotate": [`${key}/rotate`],
    "root-key-revoke": [`${key}/revoke`],
    apis: [at("/apis")],
    api: [at(`/apis/${story.orders}`)],
    "api-new": [at("/apis/new")],
    "api-settings": [at(`/apis/${story.orders}/settings`)],
    "api-delete": [at(`/apis/${story.api}/delete`)],
    keys: [at("/keys")],
    key: [at(`/keys/${story.orderKey}`)],
    "key-new": [at(`/keys/new?api=${story.orders}`)],
    "key-edit": [at(`/keys/${story.orderKey}/edit`)],
    "key-credits": [at(`/keys/${story.orderKey}/credits`)],
    "key-reroll": [at(`/keys/${story.orderKey}/reroll`)],
    "key-not-shown": [at(`/keys/${story.orderKey}/secret/none`)],
    "key-delete": [at(`/keys/${story.orderKey}/delete`)],
    "key-why": [at(`/keys/why?request=${story.refused}`)],
    search: [at("/search?q=user_77")],
    "search-none": [at("/search?q=nothing+like+that")],
    "key-deleted": [at(`/keys/${story.deletedKey}`)],
    "key-why-not": [at("/keys/why?request=req_none")],
    identities: [at("/identities")],
    identity: [story.identity],
    "identity-edit": [`${story.identity}/edit`],
    "identity-delete": [`${story.identity}/delete`],
    permissions: [at("/permissions")],
    permission: [at("/permissions/documents.search")],
    "permission-new": [at("/permissions/new")],
    roles: [at("/roles")],
    role: [story.role],
    "role-permissions": [`${story.role}/permissions`],
    "which-keys": [at("/which-keys?slug=documents.search")],
    namespaces: [at("/ratelimits")],
    namespace: [story.namespace],
    override: [`${story.namespace}/override?identifier=user_*`],
    simulator: [`${story.namespace}/simulator?identifier=user_2&limit=10&duration=1&duration-unit=min&cost=1`],
    "namespace-delete": [`${story.namespace}/delete`],
    gateways: [at("/gateways")],
    gateway: [story.gateway],
    "gateway-kubernetes": [`${story.gateway}?for=kubernetes`],
    "gateway-new": [at("/gateways/new")],
    "gateway-settings": [`${story.gateway}/settings`],
    "gateway-rotate": [`${story.gateway}/rotate`],
    "gateway-try": [`${story.gateway}/try`],
    "gateway-delete": [`${story.gateway}/delete`],
    imports: [at("/imports")],
    import: [story.import],
    "import-new": [at("/imports/new")],
    members: [at("/members")],
    workspace: [at("/workspace")],
    audit: [at("/audit")],
    "audit-entry": [story.entry],
    account: ["/dashboard/account"],
    "not-there": [at("/nothing/here")],
    "not-there-stranger": ["/dashboard/nothing/here", true],
    "wrong-method": [at("/keys/bulk")],
    error: ["/errors/precondition_failed", true],
  };
  const signedIn = await visitor({ storageState: await story.page.context().storageState() });
  const stranger = await visitor();
  for (const [name, [path, isStrange]] of Object.entries(pages)) {
    await check(`${name} is in order in both themes at every width`, async () => {
      const page = isStrange ? stranger : signedIn;
      page.expected = { "not-there": [404], "not-there-stranger": [404], "wrong-method": [405], "key-deleted": [410], "key-not-shown": [410] }[name] ?? [];
      await inOrder(page, name, () => go(page, path));
    });
  }
  await signedIn.context().close();
  await stranger.context().close();

  await check("no page had an error in its console or went against its policy", () => {
    assert.deepEqual(complaints, []);
  });
}
