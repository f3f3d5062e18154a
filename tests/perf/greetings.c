/* The endpoint of examples/c; with `greetings` or `words` it only reads lines of standard input, as it
   reads those of a peer, and says of each what it makes of it. */
#define main endpoint_main
#include "main.c"
#undef main

static uint8_t sink[KIT_BYTES];

static void is_within(int holds, const char *what)
{
	if (!holds)
		die("taken, and out of its range: %s", what);
}

static const char *greeted(const char *greeting)
{
	struct purpose purpose;
	const char *why = read_purpose(greeting, &purpose);
	if (why)
		return why;
	is_within(purpose.planes >= 1 && purpose.planes <= PLANES_MAX, "planes");
	is_within(purpose.evs >= 1 && purpose.evs <= PATHS_PER_PLANE, "evs");
	is_within(purpose.mpr >= 1 && purpose.mpr <= WINDOW, "mpr");
	is_within(purpose.is_kit || (purpose.size >= 1 && purpose.size <= MESSAGE_MAX), "size");
	struct attributes *peer = &ep->qp[0].peer;
	if (!(why = read_attributes(ep, member(greeting, "qp"), peer)))
		why = read_region(item(member(greeting, "regions"), 0, NULL), 4096, &theirs);
	if (why)
		return why;
	is_within(peer->n_planes == ep->n_planes, "attributes' planes");
	is_within(peer->qpn > 2 && peer->qpn < 1 << 24 && peer->mpr > 0 && peer->pmtu >= 1024, "qp");
	is_within(theirs.va + (theirs.length - 1) >= theirs.va, "region");
	return NULL;
}

static void read_lines(int words)
{
	static char text[1 << 24], planes[] = "127.0.8.1,127.0.8.2";
	uint8_t *source = memory_of(KIT_BYTES);
	line = line_of(-1);
	ep = (struct endpoint *)memory_of(sizeof *ep);
	ep->pmtu = 1024;
	open_planes(ep, planes, 2, PATHS_PER_PLANE);
	new_qp(ep);
	while (fgets(text, sizeof text, stdin)) {
		text[strcspn(text, "\n")] = 0;
		const char *json = object_of(text), *why = "no object";
		if (json)
			why = words ? obey(json, source, sink) : greeted(json);
		printf("%s%s\n", why ? "refused: " : "taken", why ? why : "");
	}
	free(source), free(ep), line_close(line);
}

int main(int argc, char **argv)
{
	int words = argc > 1 && !strcmp(argv[1], "words");
	if (!words && (argc < 2 || strcmp(argv[1], "greetings")))
		return endpoint_main(argc, argv);
	read_lines(words);
	return 0;
}
