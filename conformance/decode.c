/* A decoder of MRC in C, written from mrc.h and the page on the wire; nothing else is needed.

       cc -o decode decode.c && ./decode < FRAMES

   FRAMES has a frame a line in hexadecimal; " swapped" behind it exchanges the halves of the EV,
   " trimmed=11,21" are a fabric's own DSCPs of TRIMMED and TRIMMED_LASTHOP.
   Of each it prints a line: HEADER.FIELD=VALUE of every field in hexadecimal and what follows from
   them, or "refused CODE OFFSET". */
#include <stdio.h>
#include <string.h>

#include "mrc.h"

#define REFUSE(why, at) do { *where = (at); return MRC_E_##why; } while (0)
#define REQUIRE(holds, why, header, field) \
	do { if (!(holds)) REFUSE(why, (header) + first_byte(MRC_##field)); } while (0)
#define GET(header, field) mrc_get(f + (header), MRC_##field)

static char text[65536];
static size_t told;

static size_t first_byte(unsigned bit, unsigned bits) { (void)bits; return bit / 8; }

static void tell(const char *prefix, const struct mrc_header *header, const uint8_t *at)
{
	for (const struct mrc_field *field = header->fields; field->name; field++) {
		told += sprintf(text + told, "%s%s.%s=", prefix, header->name, field->name);
		for (unsigned left = field->bits; left > 64; left -= 64)
			told += sprintf(text + told, "%016llx",
				(unsigned long long)mrc_get(at, field->bit + field->bits - left, 64));
		unsigned last = field->bits > 64 ? 64 : field->bits;
		told += sprintf(text + told, field->bits > 64 ? "%016llx|" : "%llx|",
			(unsigned long long)mrc_get(at, field->bit + field->bits - last, last));
	}
}

static uint32_t crc(uint32_t sum, uint8_t byte)
{
	sum ^= byte;
	for (int i = 0; i < 8; i++)
		sum = sum & 1 ? sum >> 1 ^ 0xEDB88320 : sum >> 1;
	return sum;
}

/* Over the packet from its inner IP header to `end`, ones for what changes on the way. */
static uint32_t invariant_crc(const uint8_t *f, size_t ip, size_t udp, size_t end, int v6)
{
	uint32_t sum = 0xFFFFFFFF;
	for (int i = 0; i < 8; i++)
		sum = crc(sum, 0xFF);
	for (size_t at = ip; at < end; at++) {
		size_t i = at - ip, u = at - udp;
		int ones = v6 ? (i >= 1 && i <= 3) || i == 7 : i == 1 || i == 8 || i == 10 || i == 11;
		ones |= at >= udp && (u == 6 || u == 7 || u == 12);
		sum = crc(sum, ones ? 0xFF : v6 && i == 0 ? f[at] | 0x0F : f[at]);
	}
	return ~sum;
}

static unsigned trimmed_by[2];

static int is_trimmed(unsigned dscp) { return dscp == trimmed_by[0] || dscp == trimmed_by[1]; }

static enum mrc_code decode(const uint8_t *f, size_t n, int swapped, size_t *where)
{
	size_t at = MRC_ETHERNET.bytes, end = n, ip = at, udp, bth;
	int v6, trimmed, tunnel = 0;
	if (n < at)
		REFUSE(TOO_SHORT, 0);
	unsigned type = GET(0, ETHERNET_ETHERTYPE);
	v6 = type == 0x86DD;
	REQUIRE(v6 || type == 0x0800, ETHERTYPE, 0, ETHERNET_ETHERTYPE);
	tell("", &MRC_ETHERNET, f);
	if (v6) {
		for (;; tunnel = 1) {
			if (end < at + MRC_IPV6.bytes)
				REFUSE(TOO_SHORT, at);
			ip = at;
			at += MRC_IPV6.bytes;
			REQUIRE(GET(ip, IPV6_VERSION) == 6, IP_VERSION, ip, IPV6_VERSION);
			size_t stop = at + GET(ip, IPV6_PAYLOAD_LENGTH);
			REQUIRE(tunnel ? stop == end : stop <= end, IP_LENGTH, ip, IPV6_PAYLOAD_LENGTH);
			end = stop;
			unsigned next = GET(ip, IPV6_NEXT_HEADER);
			REQUIRE(next == 17 || (!tunnel && (next == 41 || next == 43)), NEXT_HEADER, ip,
				IPV6_NEXT_HEADER);
			tell(next == 17 ? "" : "outer ", &MRC_IPV6, f + ip);
			if (next == 17)
				break;
			REQUIRE(f[ip + 28] || f[ip + 29], CARRIER_EMPTY, ip, IPV6_DST);
			if (next != 43)
				continue;
			size_t srh = at;
			if (end < srh + MRC_SRH.bytes)
				REFUSE(TOO_SHORT, srh);
			REQUIRE(GET(srh, SRH_NEXT_HEADER) == 41, NEXT_HEADER, srh, SRH_NEXT_HEADER);
			REQUIRE(GET(srh, SRH_HDR_EXT_LEN) == 2, ROUTING, srh, SRH_HDR_EXT_LEN);
			REQUIRE(GET(srh, SRH_ROUTING_TYPE) == 4, ROUTING, srh, SRH_ROUTING_TYPE);
			REQUIRE(GET(srh, SRH_SEGMENTS_LEFT) <= 1, ROUTING, srh, SRH_SEGMENTS_LEFT);
			REQUIRE(GET(srh, SRH_LAST_ENTRY) == 0, ROUTING, srh, SRH_LAST_ENTRY);
			tell("", &MRC_SRH, f + srh);
			at += MRC_SRH.bytes;
		}
		trimmed = is_trimmed(GET(14, IPV6_DSCP)) || is_trimmed(GET(ip, IPV6_DSCP));
	} else {
		uint32_t sum = 0;
		if (n < at + MRC_IPV4.bytes)
			REFUSE(TOO_SHORT, at);
		at += MRC_IPV4.bytes;
		REQUIRE(GET(ip, IPV4_VERSION) == 4, IP_VERSION, ip, IPV4_VERSION);
		REQUIRE(GET(ip, IPV4_IHL) == 5, IP_HEADER_LENGTH, ip, IPV4_IHL);
		end = ip + GET(ip, IPV4_TOTAL_LENGTH);
		REQUIRE(end >= at && end <= n, IP_LENGTH, ip, IPV4_TOTAL_LENGTH);
		REQUIRE(!(GET(ip, IPV4_IP_FLAGS) & 1) && !GET(ip, IPV4_FRAGMENT_OFFSET), FRAGMENT, ip,
			IPV4_IP_FLAGS);
		REQUIRE(GET(ip, IPV4_PROTOCOL) == 17, NEXT_HEADER, ip, IPV4_PROTOCOL);
		for (size_t i = ip; i < at; i += 2)
			sum += f[i] << 8 | f[i + 1];
		sum = (sum & 0xFFFF) + (sum >> 16);
		REQUIRE((sum & 0xFFFF) + (sum >> 16) == 0xFFFF, IP_CHECKSUM, ip, IPV4_HEADER_CHECKSUM);
		tell("", &MRC_IPV4, f + ip);
		trimmed = is_trimmed(GET(ip, IPV4_DSCP));
	}
	udp = at;
	bth = at += MRC_UDP.bytes;
	if (end < at)
		REFUSE(TOO_SHORT, udp);
	unsigned port = GET(udp, UDP_DST_PORT);
	REQUIRE(port == MRC_UDP_PORT || port == MRC_UDP_PORT_ALTERNATIVE, UDP_PORT, udp, UDP_DST_PORT);
	REQUIRE(GET(udp, UDP_LENGTH) == end - udp, UDP_LENGTH, udp, UDP_LENGTH);
	tell("", &MRC_UDP, f + udp);

	size_t stop = trimmed ? end : end - MRC_ICRC.bytes;
	at += MRC_BTH.bytes;
	if (end < bth + MRC_ICRC.bytes || stop < at)
		REFUSE(TOO_SHORT, bth);
	const struct mrc_header *const *next = mrc_extensions(GET(bth, BTH_OPCODE));
	REQUIRE(next != NULL, OPCODE, bth, BTH_OPCODE);
	REQUIRE(GET(bth, BTH_TVER) == 0, TRANSPORT_VERSION, bth, BTH_TVER);
	tell("", &MRC_BTH, f + bth);
	int data = *next == &MRC_METH;
	for (; *next; next++) {
		if (*next == &MRC_TSETH && !GET(bth, BTH_TS))
			continue;
		if (at + (*next)->bytes > stop) {
			if (trimmed && *next == &MRC_IMMDT)
				continue;
			REFUSE(EXTENSION_LENGTH, at);
		}
		for (const struct mrc_field *field = (*next)->fields; field->name; field++)
			if (!strcmp(field->name, "ftype")) {
				unsigned ftype = mrc_get(f + at, field->bit, field->bits);
				if (ftype != MRC_FTYPE_TIMESTAMP
				    && (ftype != MRC_FTYPE_NONE || *next == &MRC_TSETH))
					REFUSE(FTYPE, at + field->bit / 8);
			}
		tell("", *next, f + at);
		at += (*next)->bytes;
	}
	size_t payload = 0, pad = GET(bth, BTH_PAD);
	if (!trimmed) {
		REQUIRE((stop - at) % 4 == 0 && pad <= stop - at, PAD, bth, BTH_PAD);
		payload = stop - at - pad;
		if (payload > (data ? MRC_PAYLOAD_BYTES_MAX : 0))
			REFUSE(PAYLOAD_LENGTH, at);
		uint32_t there = f[stop] | f[stop + 1] << 8 | f[stop + 2] << 16 | (uint32_t)f[stop + 3] << 24;
		if (there != invariant_crc(f, ip, udp, stop, v6))
			REFUSE(ICRC, stop);
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
	static uint8_t frame[32768];
	while (fgets(line, sizeof line, stdin)) {
		size_t n = 0, where = 0;
		unsigned byte;
		while (sscanf(line + 2 * n, "%2x", &byte) == 1)
			frame[n++] = byte;
		told = 0;
		trimmed_by[0] = MRC_DSCP_TRIMMED;
		trimmed_by[1] = MRC_DSCP_TRIMMED_LASTHOP;
		const char *own = strstr(line, "trimmed=");
		if (own)
			sscanf(own, "trimmed=%u,%u", &trimmed_by[0], &trimmed_by[1]);
		enum mrc_code code = decode(frame, n, strstr(line, "swapped") != NULL, &where);
		if (code)
			printf("refused %s %zu\n", MRC_CODES[code], where);
		else
			puts(text);
	}
	return 0;
}
