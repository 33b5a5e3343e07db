// The tool servers of the notebook in the rail: where each is, whether it answers, what it offers. One is added as a
// program or an address, looked at anew, taken out; one of the team is turned off and on. All of it by commands, so that
// every tab sees the same.

export default {
  name: "NbServers",
  props: { state: Object, page: Object },
  template: `
<section class="servers filelist" aria-label="Tool servers" data-testid="servers">
  <h2>Tool servers <button type="button" class="ghost" data-testid="server-new" :aria-expanded="adding" @click="begin">Add</button></h2>
  <p v-if="!servers.length && !adding" class="small">None. Agents can use tools of servers that speak MCP; every call asks as usual.</p>
  <form v-if="adding" data-testid="server-form" @submit.prevent="add">
    <label>Name <input ref="name" v-model.trim="name" required maxlength="24" pattern="[a-z0-9]([a-z0-9\\-]*[a-z0-9])?" placeholder="time"
      title="Small letters, digits and hyphens" autocomplete="off" data-testid="server-name"></label>
    <label>Program or address <input v-model.trim="where" required maxlength="2000" placeholder="mcp-server-time, or https://…" autocomplete="off"
      spellcheck="false" data-testid="server-where"></label>
    <p class="small">What stands here is part of the notebook. A server that needs a key belongs into the team's settings.</p>
    <p class="buttons"><button type="submit" class="primary" data-testid="server-add">Add</button>
      <button type="button" class="ghost" @click="adding = false">Cancel</button></p></form>
  <ul><li v-for="server in servers" :key="server.name" :data-server="server.name" :data-state="server.state">
    <button type="button" class="fileline" :aria-expanded="open === server.name" @click="open = open === server.name ? null : server.name">
      <span class="path">{{ server.name }}</span><span class="about" :class="{ bad: !server.off && server.state === 'failed' }">{{ words(server) }}</span></button>
    <div v-if="open === server.name" class="opened">
      <p class="small"><code>{{ place(server) }}</code><template v-if="server.team">, of the team</template></p>
      <p v-if="told(server).reason" class="small bad" role="status">{{ told(server).reason }}</p>
      <ul v-if="tools(server).length" class="offers"><li v-for="tool in tools(server)" :key="tool.name"><code>{{ tool.name }}</code>
        <span class="small">{{ tool.about }}<template v-if="tool.reads"> (says that it only reads)</template></span></li></ul>
      <p v-if="told(server).left_out" class="small">{{ told(server).left_out }} more tools are left out.</p>
      <p v-for="problem in told(server).problems ?? []" :key="problem" class="small bad">{{ problem }}</p>
      <p class="buttons"><button type="button" class="ghost" data-testid="server-look" :disabled="server.state === 'looking'" @click="page.lookAtServer(server.name)">
          {{ server.off ? 'Turn on' : 'Look again' }}</button>
        <button v-if="!server.off" type="button" class="ghost" data-testid="server-remove" @click="page.removeServer(server.name)">{{ server.team ? 'Turn off here' : 'Remove' }}</button></p>
    </div></li></ul>
</section>`,
  data: () => ({ open: null, adding: false, name: "", where: "" }),
  computed: {
    servers() {
      return [...this.state.servers].sort((one, other) => (one.name < other.name ? -1 : 1));
    },
  },
  methods: {
    told: (server) => server.told ?? {},
    tools(server) {
      return server.off ? [] : (this.told(server).tools ?? []);
    },
    place: (server) => server.url ?? (server.command ?? []).join(" "),
    words(server) {
      if (server.off) return "off";
      if (server.state === "looking") return "looking …";
      if (server.state === "failed") return "does not answer";
      const count = this.tools(server).length;
      return server.state === "listed" ? `${count} ${count === 1 ? "tool" : "tools"}` : "not asked yet";
    },
    begin() {
      this.adding = !this.adding;
      if (this.adding) this.$nextTick(() => this.$refs.name.focus());
    },
    add() {
      const where = /^https?:\/\//i.test(this.where) ? { url: this.where } : { command: this.where.split(/\s+/) };
      this.page.addServer(this.name, where);
      Object.assign(this, { open: this.name, adding: false, name: "", where: "" });
    },
  },
};
