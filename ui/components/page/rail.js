// The rail beside the cells (under them on a phone): a list of sections, each a component of its own file that gets the
// notebook's `page` and `state`, and hides itself while it has nothing to say. A new section is one more line here.

import NbChecks from "./checks.js";
import NbFiles from "./files.js";
import NbServers from "./servers.js";
import NbTimeline from "./timeline.js";

// The one that grows by itself stands last: it moves nothing.
const SECTIONS = [["Checklist", NbChecks], ["Files", NbFiles], ["Tool servers", NbServers], ["Timeline", NbTimeline]];

export default {
  name: "NbRail",
  props: { state: Object, page: Object },
  template: `
<aside class="rail" aria-label="About this notebook">
  <component v-for="[name, section] in SECTIONS" :key="name" :is="section" :state="state" :page="page"></component>
</aside>`,
  data: () => ({ SECTIONS: Object.freeze(SECTIONS) }),
};
