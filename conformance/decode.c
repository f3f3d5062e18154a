/* A decoder of MRC in C, written from mrc.h and the page on the wire; nothing else is needed.

       cc -o decode decode.c && ./decode < FRAMES

   FRAMES has a frame a line in hexadecimal; " swapped" behind it exchanges the halves of the EV,
   " trimmed=11,21" are a fabric's own DSCPs of TRIMMED and TRIMMED_LASTHOP.
   Of each it prints a line: HEADER.FIELD=VALUE of every field in hexadecimal and what follows from
   them, or "refused CODE OFFSET". */
#include <stdio.h>
#include <string.h>

#include "mrc.h"

#define REFUSE(code, byte) do { where = (byte); return code; } while (0)
#define TAKE(header, prefix) do { int code = take(&(header), prefix); if (code) return code; } while (0)
#define GET(header, field) mrc_get(f + (header), MRC_##field)

static uint8_t f[32768];      /* the frame, */
static size_t at, end, where; /* where the next header begins, the packet ends, something is wrong */
static unsigned trimmed_by[2];
static int trimmed;
static char text[65536], *told;

/* The next header: it fits, and each field says what it may. */
static int take(const struct mrc_header *header, const char *prefix)
{
	if (end < at + header->bytes)
		REFUSE(MRC_E_TOO_SHORT, at);
	for (const struct mrc_field *field = header->fields; field->name; field++) {
		unsigned rest = field->bits > 64 ? field->bits - 64 : 0; /* addresses have 128 */
		uint64_t value = mrc_get(f + at, field->bit, field->bits - rest);
		int is_wrong = !mrc_may_say(field, value);
		if (field->counts) { /* only the first IP packet may have bytes behind it */
			size_t stop = at + (field->counts == MRC_COUNTS_BEHIND ? header->bytes : 0) + value;
			if (trimmed && stop > end) /* not every switch adjusts the lengths of what it trims */
				stop = end;
			is_wrong = stop < at + header->bytes || stop > end || (at > MRC_ETHERNET.bytes && stop < end);
			end = stop;
		}
		if (is_wrong)
			REFUSE(field->refused, at + field->bit / 8);
		told += sprintf(told, "%s%s.%s=%llx", prefix, header->name, field->name, (unsigned long long)value);
		if (rest)
			told += sprintf(told, "%016llx", (unsigned long long)mrc_get(f + at, field->bit + 64, rest));
		*told++ = '|';
	}
	at += header->bytes;
	return MRC_OK;
}

static int is_trimmed(unsigned dscp) { return dscp == trimmed_by[0] || dscp == trimmed_by[1]; }

static int decode(int swapped)
{
	TAKE(MRC_ETHERNET, "");
	size_t ip = at, payload = 0;
	int is_v6 = GET(0, ETHERNET_ETHERTYPE) == MRC_ETHERTYPE_IPV6;
	unsigned next = GET(ip, IPV6_NEXT_HEADER);
	size_t inner = ip + (is_v6 && next != MRC_PROTOCOL_UDP ? MRC_IPV6.bytes : 0)
		+ (is_v6 && next == MRC_PROTOCOL_ROUTING ? MRC_SRH.bytes : 0);
	trimmed = (end >= ip + 4 && is_trimmed(is_v6 ? GET(ip, IPV6_DSCP) : GET(ip, IPV4_DSCP)))
		|| (inner != ip && end >= inner + 4 && is_trimmed(GET(inner, IPV6_DSCP)));
	if (is_v6 && next != MRC_PROTOCOL_UDP) { /* SRv6: a carrier of uSIDs, and the packet in it */
		TAKE(MRC_IPV6, "outer ");
		if (!GET(ip, CARRIER_USID))
			REFUSE(MRC_E_CARRIER_EMPTY, ip + 24);
		if (next == MRC_PROTOCOL_ROUTING)
			TAKE(MRC_SRH, "");
		ip = at;
	}
	TAKE(*(is_v6 ? &MRC_IPV6 : &MRC_IPV4), "");
	if (is_v6 && GET(ip, IPV6_NEXT_HEADER) != MRC_PROTOCOL_UDP)
		REFUSE(MRC_E_NEXT_HEADER, ip + 6);
	if (!is_v6 && !mrc_ipv4_sum_is_right(f + ip))
		REFUSE(MRC_E_IP_CHECKSUM, ip + 10);
	size_t udp = at, bth = at + MRC_UDP.bytes;
	TAKE(MRC_UDP, "");
	if (!trimmed && end < at + MRC_ICRC.bytes)
		REFUSE(MRC_E_TOO_SHORT, at);
	end -= trimmed ? 0 : MRC_ICRC.bytes;
	TAKE(MRC_BTH, "");
	const struct mrc_header *const *more = mrc_extensions(GET(bth, BTH_OPCODE));
	size_t most = *more == &MRC_METH ? MRC_PAYLOAD_BYTES_MAX : 0;
	for (; *more; more++) {
		int is_missing = at + (*more)->bytes > end;
		if (*more == &MRC_TSETH ? !GET(bth, BTH_TS) : *more == &MRC_IMMDT && trimmed && is_missing)
			continue;
		if (is_missing)
			REFUSE(MRC_E_EXTENSION_LENGTH, at);
		TAKE(**more, "");
	}
	if (!trimmed) {
		size_t pad = GET(bth, BTH_PAD);
		if ((end - at) % 4 || pad > end - at)
			REFUSE(MRC_E_PAD, bth + 1);
		payload = end - at - pad;
		if (payload > most)
			REFUSE(MRC_E_PAYLOAD_LENGTH, at);
		uint32_t there = f[end] | f[end + 1] << 8 | f[end + 2] << 16 | (uint32_t)f[end + 3] << 24;
		if (there != mrc_icrc(f + ip, end - ip))
			REFUSE(MRC_E_ICRC, end);
		told += sprintf(told, "iCRC.icrc=%x|", (unsigned)there);
	}
	uint32_t label = is_v6 ? GET(ip, IPV6_FLOW_LABEL) & 0xFFFF : 0, port = GET(udp, UDP_SRC_PORT);
	sprintf(told, "ev=%x|trimmed=%x|payload_at=%zx|payload_length=%zx",
		(unsigned)(swapped ? port << 16 | label : label << 16 | port), trimmed, at, payload);
	return MRC_OK;
}

int main(void)
{
	static char line[65536];
	while (fgets(line, sizeof line, stdin)) {
		unsigned byte;
		for (end = 0; sscanf(line + 2 * end, "%2x", &byte) == 1; end++)
			f[end] = byte;
		at = 0, told = text;
		trimmed_by[0] = MRC_DSCP_TRIMMED, trimmed_by[1] = MRC_DSCP_TRIMMED_LASTHOP;
		const char *own = strstr(line, "trimmed=");
		if (own)
			sscanf(own, "trimmed=%u,%u", &trimmed_by[0], &trimmed_by[1]);
		int code = decode(strstr(line, "swapped") != NULL);
		code ? printf("refused %s %zu\n", MRC_CODES[code], where) : puts(text);
	}
	return 0;
}
