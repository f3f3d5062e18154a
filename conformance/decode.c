/* A decoder of MRC in C, written from mrc.h and the page on the wire; nothing else is needed.

       cc -o decode decode.c && ./decode < FRAMES

   FRAMES has a frame a line in hexadecimal; " swapped" behind it exchanges the halves of the EV,
   " trimmed=11,21" are a fabric's own DSCPs of TRIMMED and TRIMMED_LASTHOP.
   Of each it prints a line: HEADER.FIELD=VALUE of every field in hexadecimal and what follows from
   them, or "refused CODE OFFSET". */
#include <stdio.h>
#include <string.h>

#include "mrc.h"

#define REFUSE(why, byte) do { where = (byte); return MRC_E_##why; } while (0)
#define TAKE(header, prefix) do { int code = take(&(header), prefix); if (code) return code; } while (0)
#define GET(header, field) mrc_get(f + (header), MRC_##field)

static uint8_t f[32768];      /* the frame, */
static size_t at, end, where; /* where the next header begins, the packet ends, something is wrong */
static unsigned trimmed_by[2];
static char text[65536];
static size_t told;

static void tell(const char *prefix, const char *header, const struct mrc_field *field)
{
	told += sprintf(text + told, "%s%s.%s=", prefix, header, field->name);
	for (unsigned done = 0, part; done < field->bits; done += part) {
		part = (field->bits - done - 1) % 64 + 1;
		told += sprintf(text + told, done ? "%016llx" : "%llx",
			(unsigned long long)mrc_get(f + at, field->bit + done, part));
	}
	told += sprintf(text + told, "|");
}

/* The next header: it fits, and each field says what it may. */
static int take(const struct mrc_header *header, const char *prefix)
{
	if (end < at + header->bytes)
		REFUSE(TOO_SHORT, at);
	for (const struct mrc_field *field = header->fields; field->name; field++) {
		uint64_t value = mrc_get(f + at, field->bit, field->bits > 64 ? 64 : field->bits);
		const uint16_t *one = field->allowed;
		while (one && *one != MRC_END && *one != value)
			one++;
		int is_wrong = one && *one == MRC_END;
		if (field->counts) { /* only the first IP packet may have bytes behind it */
			size_t behind = at + header->bytes;
			size_t stop = (field->counts == MRC_COUNTS_BEHIND ? behind : at) + value;
			is_wrong = stop < behind || stop > end || (at > MRC_ETHERNET.bytes && stop < end);
			end = stop;
		}
		if (is_wrong) {
			where = at + field->bit / 8;
			return field->refused;
		}
		tell(prefix, header->name, field);
	}
	at += header->bytes;
	return MRC_OK;
}

static int is_trimmed(unsigned dscp) { return dscp == trimmed_by[0] || dscp == trimmed_by[1]; }

static int decode(int swapped)
{
	TAKE(MRC_ETHERNET, "");
	size_t ip = at, udp, bth, payload = 0, pad;
	int v6 = GET(0, ETHERNET_ETHERTYPE) == 0x86DD, trimmed;
	if (v6) {
		unsigned next = GET(ip, IPV6_NEXT_HEADER);
		TAKE(MRC_IPV6, next == 17 ? "" : "outer ");
		trimmed = is_trimmed(GET(ip, IPV6_DSCP));
		if (next != 17) {
			if (!f[ip + 28] && !f[ip + 29])
				REFUSE(CARRIER_EMPTY, ip + 24);
			if (next == 43)
				TAKE(MRC_SRH, "");
			ip = at;
			TAKE(MRC_IPV6, "");
			if (GET(ip, IPV6_NEXT_HEADER) != 17)
				REFUSE(NEXT_HEADER, ip + 6);
			trimmed |= is_trimmed(GET(ip, IPV6_DSCP));
		}
	} else {
		TAKE(MRC_IPV4, "");
		unsigned sum = 0;
		for (size_t i = ip; i < at; i += 2)
			sum += f[i] << 8 | f[i + 1];
		if (sum % 0xFFFF) /* RFC 1071: with its checksum in it a header sums up to ones */
			REFUSE(IP_CHECKSUM, ip + 10);
		trimmed = is_trimmed(GET(ip, IPV4_DSCP));
	}
	udp = at;
	TAKE(MRC_UDP, "");
	bth = at;
	if (!trimmed && end < at + MRC_ICRC.bytes)
		REFUSE(TOO_SHORT, at);
	end -= trimmed ? 0 : MRC_ICRC.bytes;
	TAKE(MRC_BTH, "");
	const struct mrc_header *const *next = mrc_extensions(GET(bth, BTH_OPCODE));
	int is_data = *next == &MRC_METH;
	for (; *next; next++) {
		int spared = trimmed && *next == &MRC_IMMDT && at + (*next)->bytes > end;
		if (spared || (*next == &MRC_TSETH && !GET(bth, BTH_TS)))
			continue;
		if (at + (*next)->bytes > end)
			REFUSE(EXTENSION_LENGTH, at);
		TAKE(**next, "");
	}
	if (!trimmed) {
		pad = GET(bth, BTH_PAD);
		if ((end - at) % 4 || pad > end - at)
			REFUSE(PAD, bth + 1);
		payload = end - at - pad;
		if (payload > (is_data ? MRC_PAYLOAD_BYTES_MAX : 0))
			REFUSE(PAYLOAD_LENGTH, at);
		uint32_t there = f[end] | f[end + 1] << 8 | f[end + 2] << 16 | (uint32_t)f[end + 3] << 24;
		if (there != mrc_icrc(f + ip, end - ip))
			REFUSE(ICRC, end);
		told += sprintf(text + told, "iCRC.icrc=%x|", (unsigned)there);
	}
	uint32_t high = v6 ? GET(ip, IPV6_FLOW_LABEL) & 0xFFFF : 0, low = GET(udp, UDP_SRC_PORT);
	sprintf(text + told, "ev=%x|trimmed=%x|payload_at=%zx|payload_length=%zx",
		(unsigned)(swapped ? low << 16 | high : high << 16 | low), trimmed, at, payload);
	return MRC_OK;
}

int main(void)
{
	static char line[65536];
	while (fgets(line, sizeof line, stdin)) {
		unsigned byte;
		for (end = 0; sscanf(line + 2 * end, "%2x", &byte) == 1; end++)
			f[end] = byte;
		at = told = 0;
		trimmed_by[0] = MRC_DSCP_TRIMMED;
		trimmed_by[1] = MRC_DSCP_TRIMMED_LASTHOP;
		const char *own = strstr(line, "trimmed=");
		if (own)
			sscanf(own, "trimmed=%u,%u", &trimmed_by[0], &trimmed_by[1]);
		int code = decode(strstr(line, "swapped") != NULL);
		if (code)
			printf("refused %s %zu\n", MRC_CODES[code], where);
		else
			puts(text);
	}
	return 0;
}
