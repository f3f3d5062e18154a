-- MRC (Multipath Reliable Connection) for Wireshark and tshark 4.0 or later:
--
--     tshark -X lua_script:mrc.lua -r capture.pcapng
--
-- It follows the public descriptions of MRC 1.0. Fields are named mrc.HEADER.FIELD (mrc.bth.psn,
-- mrc.seth.cack_psn); short forms are mrc.opcode, mrc.qpn, mrc.psn (of data, and that a NACK
-- refuses), mrc.request_id (of endpoint packets), mrc.rtx, mrc.ev, mrc.trimmed and mrc.icrc.status.
-- A host's capture has frames that hold several packets: each is dissected. What belongs between the two markers is made from layout.py:
-- the file that `python -m openmrc.wire.dissector` names has it.

local mrc = Proto("mrc", "Multipath Reliable Connection")

-- made from layout: tables
-- end of tables

local BAD, GOOD, UNVERIFIED, NOT_PRESENT = 0, 1, 2, 3 -- Wireshark's own words for checksums
local STATUS = {
  [BAD] = "Bad", [GOOD] = "Good", [UNVERIFIED] = "Unverified", [NOT_PRESENT] = "Not present",
}
local MRC_OPCODES = 6 -- the upper three bits of an opcode
local RUNS_SHOWN = 4 -- of a SACK's bitmap
local SIZES_MAX = 64 -- of joined packets that are tried
local IPV6_AND_SRH = 40 + 24 -- bytes from an outer header to the inner one, at most
local IPV6_BYTES, IPV6_LENGTH_AT, IPV4_LENGTH_AT = 40, 4, 2 -- and where its length stands

local OWN = {
  ev = ProtoField.uint32("mrc.ev", "EV", base.HEX, nil, nil,
    "path of this packet: source port and inner flow label"),
  trimmed = ProtoField.uint8("mrc.trimmed", "Trimmed", base.DEC, nil, nil,
    "DSCP of a trimmed packet; others do not have this field"),
  psn = ProtoField.uint24("mrc.psn", "PSN", base.DEC, nil, nil,
    "of a data packet, or of the one that a NACK refuses"),
  request_id = ProtoField.uint24("mrc.request_id", "Request id", base.DEC, nil, nil,
    "of an endpoint request or its response"),
  joined = ProtoField.uint32("mrc.joined", "Joined packets", base.DEC, nil, nil,
    "packets in this frame of a host; others do not have this field"),
  payload = ProtoField.bytes("mrc.payload", "Payload"),
  payload_length = ProtoField.uint32("mrc.payload_length", "Payload length", base.DEC),
  padding = ProtoField.bytes("mrc.padding", "Padding"),
  remainder = ProtoField.bytes("mrc.remainder", "What trimming left of the payload"),
  icrc_status = ProtoField.uint8("mrc.icrc.status", "iCRC status", base.DEC, STATUS),
  icrc_calculated = ProtoField.uint32("mrc.icrc.calculated", "Calculated iCRC", base.HEX),
}

mrc.prefs.ports = Pref.range("UDP ports", UDP_PORTS, "destination ports of MRC", 65535)
mrc.prefs.ev_swapped = Pref.bool("Swap the halves of the EV", false,
  "the source port holds the upper half of the EV, the flow label the lower one")
mrc.prefs.ports_from_1 = Pref.bool("Ports count from 1", false,
  "bit p of a port status mask is port p - 1")
mrc.prefs.dscp_no_trim = Pref.uint("DSCP NO_TRIM", DSCP_NO_TRIM, "of this fabric")
mrc.prefs.dscp_trimmed = Pref.uint("DSCP TRIMMED", DSCP_TRIMMED, "of this fabric")
mrc.prefs.dscp_trimmed_lasthop = Pref.uint("DSCP TRIMMED_LASTHOP", DSCP_TRIMMED_LASTHOP,
  "of this fabric")
mrc.prefs.check_icrc = Pref.bool("Check the iCRC", true,
  "takes half a millisecond for a packet of 4 KiB")

do
  local fields, experts = {}, {}
  for _, field in pairs(OWN) do fields[#fields + 1] = field end
  for _, field in ipairs(SHORT_FORMS) do fields[#fields + 1] = field[4] end
  for _, header in ipairs(HEADERS) do
    header.by_name = {}
    for _, field in ipairs(header) do
      header.by_name[field[1]] = field
      fields[#fields + 1] = field[4]
    end
  end
  for _, error in pairs(ERRORS) do experts[#experts + 1] = error[2] end
  mrc.fields, mrc.experts = fields, experts
end

-- The IP headers in front, as Wireshark has dissected them ----------------------------------------

local all_ipv6, all_ipv4, all_udp = Field.new("ipv6"), Field.new("ip"), Field.new("udp")
local ipv6_dscp, ipv4_dscp = Field.new("ipv6.tclass.dscp"), Field.new("ip.dsfield.dscp")
local ipv6_ecn, ipv4_ecn = Field.new("ipv6.tclass.ecn"), Field.new("ip.dsfield.ecn")
local all_labels, udp_length = Field.new("ipv6.flow"), Field.new("udp.length")
local ipv6_length, ipv4_length = Field.new("ipv6.plen"), Field.new("ip.len")

local function last(extractor)
  local found = { extractor() }
  return found[#found]
end

-- A field in the IP headers of this packet, outermost first; there is one IPv4 header.
local function each(is_ipv4, of_ipv6, of_ipv4)
  if is_ipv4 then return { last(of_ipv4) } end
  local ips, all, found = { all_ipv6() }, { of_ipv6() }, {}
  local first = #ips
  while first > 1 and ips[first].range:offset() - ips[first - 1].range:offset() <= IPV6_AND_SRH do
    first = first - 1 -- not those of a tunnel that a mirror's copy came through
  end
  for i = first, #all do found[#found + 1] = all[i] end
  return found
end

local function values(is_ipv4, of_ipv6, of_ipv4)
  local found = each(is_ipv4, of_ipv6, of_ipv4)
  for i = 1, #found do found[i] = found[i].value end
  return found
end

-- Which lengths of a trimmed packet the switch adjusted; others are those of the whole packet.
-- `length` bytes are behind UDP.
local function adjusted(is_ipv4, length)
  local udp, behind = last(all_udp).range:offset(), {}
  local stop = udp + UDP_BYTES + length
  for _, field in ipairs(each(is_ipv4, ipv6_length, ipv4_length)) do
    local from = field.offset + (is_ipv4 and -IPV4_LENGTH_AT or IPV6_BYTES - IPV6_LENGTH_AT)
    behind[#behind + 1] = from + field.value > stop
  end
  behind[#behind + 1] = udp + last(udp_length).value > stop
  local kept = 0
  for _, is_kept in ipairs(behind) do kept = kept + (is_kept and 1 or 0) end
  if kept == 0 then return "all lengths adjusted" end
  if kept == #behind then return "no length adjusted" end
  local is_outer = kept == #behind - 1 and not behind[1]
  return is_outer and "outer length adjusted" or "some lengths adjusted"
end

-- What a switch that has trimmed a packet with this DSCP is said to have done; nil: it has not.
local function trimmed_by(dscp)
  if dscp == mrc.prefs.dscp_trimmed then return "TRIMMED" end
  return dscp == mrc.prefs.dscp_trimmed_lasthop and "TRIMMED_LASTHOP" or nil
end

-- What the headers in front of UDP say: the inner one, EV, DSCP and CE.
local function outside(pinfo)
  local ip, ipv4 = last(all_ipv6), last(all_ipv4)
  local is_ipv4 = ipv4 ~= nil and (ip == nil or ipv4.range:offset() > ip.range:offset())
  if is_ipv4 then ip = ipv4 end

  local dscps = values(is_ipv4, ipv6_dscp, ipv4_dscp)
  local dscp, ce = dscps[1], false
  for _, other in ipairs(dscps) do
    if trimmed_by(other) and not trimmed_by(dscp) then dscp = other end
  end
  for _, ecn in ipairs(values(is_ipv4, ipv6_ecn, ipv4_ecn)) do ce = ce or ecn == ECN_CE end

  local label = last(all_labels)
  local port, half = pinfo.src_port, not is_ipv4 and label and label.value % 65536 or 0
  local ev = mrc.prefs.ev_swapped and port * 65536 + half or half * 65536 + port
  return { ip = ip, is_ipv4 = is_ipv4, dscp = dscp, trimmed = trimmed_by(dscp), ce = ce, ev = ev }
end

-- Fields ------------------------------------------------------------------------------------------

-- The bytes in which a field stands, and the field's first bit in them.
local function place(tvb, at, field)
  local first = math.floor(field[2] / 8)
  local behind = math.floor((field[2] + field[3] + 7) / 8)
  return tvb(at + first, behind - first), field[2] % 8
end

-- The value of a field; of a signed one, too. Not for more than 32 bits.
local function value(p, header, name)
  local field = header.by_name[name]
  local range, first = place(p.tvb, p.at[header], field)
  return range:bitfield(first, field[3])
end

local function signed(p, header, name)
  return (place(p.tvb, p.at[header], header.by_name[name])):int()
end

-- The two halves of a field of 64 bits.
local function halves(p, header, name)
  local range = place(p.tvb, p.at[header], header.by_name[name])
  return range(0, 4):uint(), range(4, 4):uint()
end

-- The first thing that is wrong is what the line says.
local function note(p, error) p.problem = p.problem or error[1] end

local function complain(p, item, error)
  item:add_proto_expert_info(error[2])
  note(p, error)
end

local function miss(p, header)
  p.missing[#p.missing + 1] = header.name
  p.missing[header] = true
end

-- Adds a header's fields to the tree, and what is wrong with them.
local function add_header(p, header, at)
  p.at[header] = at
  local branch = p.tree:add(mrc, p.tvb(at, header.size), header.name .. ": " .. header.title)
  for _, field in ipairs(header) do
    local item = branch:add(field[4], (place(p.tvb, at, field)))
    if field[1] == "ftype" then
      local ftype = value(p, header, "ftype")
      p.unstamped = ftype == FTYPE_NONE and header ~= TSETH
      if ftype ~= FTYPE_TIMESTAMP and not p.unstamped then complain(p, item, ERRORS.FTYPE) end
    end
  end
  return branch
end

-- Whether a header at `at` is there. A packet that ends before it is wrong; one that the capture cut
-- short, or a switch, is not.
local function is_whole(p, header, at)
  if at + header.size > p.behind then
    if p.trimmed then note(p, ERRORS.EXTENSION_LENGTH)
    elseif #p.missing == 0 then complain(p, p.tree, ERRORS.EXTENSION_LENGTH) end
    return false
  end
  if at + header.size > p.tvb:captured_len() then note(p, ERRORS.TOO_SHORT) end
  return #p.missing == 0 and at + header.size <= p.tvb:captured_len()
end

-- BTH and what follows it; the offset behind it, or nil if that is behind the packet's end.
local function add_headers(p)
  local branch = add_header(p, BTH, 0)
  for _, field in ipairs(SHORT_FORMS) do
    branch:add(field[4], (place(p.tvb, 0, field))):set_hidden()
  end
  local first = p.extensions and p.extensions[1]
  local psn = place(p.tvb, 0, BTH.by_name.psn)
  if first == METH then branch:add(OWN.psn, psn):set_hidden() end
  if first == ERTH or first == EETH then branch:add(OWN.request_id, psn):set_hidden() end
  if not p.extensions then
    complain(p, branch, ERRORS.OPCODE)
    return nil
  end
  if value(p, BTH, "tver") ~= 0 then complain(p, branch, ERRORS.TRANSPORT_VERSION) end
  local at = BTH.size
  for _, header in ipairs(p.extensions) do
    if header ~= TSETH or value(p, BTH, "ts") == 1 then
      local spared = p.trimmed and header == IMMDT and at + header.size > p.behind
      if not spared then
        if is_whole(p, header, at) then add_header(p, header, at) else miss(p, header) end
        if header == NETH and p.at[NETH] then
          branch:add(OWN.psn, (place(p.tvb, at, NETH.by_name.nack_psn))):set_hidden()
        end
        at = at + header.size
      end
    end
  end
  return at <= p.behind and at or nil
end

-- What stands between the headers and the iCRC.
local function add_payload(p, at)
  local captured = p.tvb:captured_len()
  if p.trimmed then
    if at < captured then p.tree:add(OWN.remainder, p.tvb(at)) end
    return
  end
  local pad = value(p, BTH, "pad")
  local length = p.behind - at - pad
  if length < 0 or (p.behind - at) % 4 ~= 0 then
    complain(p, p.tree, ERRORS.PAD)
    return
  end
  p.payload_length = length
  local item = p.tree:add(OWN.payload_length, length):set_generated()
  if length > (p.is_data and MAX_PAYLOAD or 0) then complain(p, item, ERRORS.PAYLOAD_LENGTH) end
  if length > 0 and at < captured then
    p.tree:add(OWN.payload, p.tvb(at, math.min(captured - at, length)))
  end
  if pad > 0 and at + length + pad <= captured then
    p.tree:add(OWN.padding, p.tvb(at + length, pad))
  end
end

-- The iCRC ----------------------------------------------------------------------------------------

-- Lua 5.2 has `bit32`, Lua 5.4 operators that 5.2 cannot read.
local xor = bit32 and bit32.bxor or load("return function(a, b) return a ~ b end")()
local either = bit32 and bit32.bor or load("return function(a, b) return a | b end")()
local CRC = {}
for byte = 0, 255 do
  local crc = byte
  for _ = 1, 8 do
    local low = crc % 2
    crc = (crc - low) / 2
    if low == 1 then crc = xor(crc, 0xEDB88320) end
  end
  CRC[byte] = crc
end

local function add_byte(crc, byte)
  local low = crc % 256
  return xor((crc - low) / 256, CRC[xor(low, byte)])
end

-- The sum over all bytes of a packet, from the IP header on, but the last four.
local function icrc(bytes, mask)
  local crc = 0xFFFFFFFF
  for _ = 1, 8 do crc = add_byte(crc, 255) end
  for i = 1, #mask do crc = add_byte(crc, either(bytes:byte(i), mask[i])) end
  for i = #mask + 1, #bytes - ICRC.size do crc = add_byte(crc, bytes:byte(i)) end
  return xor(crc, 0xFFFFFFFF)
end

-- IP and UDP header of a packet with `length` bytes behind them, one of several in its frame or not.
local function with_lengths(ip, is_ipv4, length)
  local function put(header, at, number)
    return header:sub(1, at) .. string.char(math.floor(number / 256) % 256, number % 256)
      .. header:sub(at + 3)
  end
  local front, udp = ip.range:raw(), last(all_udp).range:raw()
  local behind = UDP_BYTES + length
  if is_ipv4 then front = put(front, 2, #front + behind) else front = put(front, 4, behind) end
  return front .. put(udp, 4, behind)
end

local function check_icrc(p, ip, is_ipv4)
  local length = p.length
  if p.trimmed or p.tvb:captured_len() < length or not ip then
    local status = p.trimmed and NOT_PRESENT or UNVERIFIED
    p.tree:add(OWN.icrc_status, status):set_generated()
    return
  end
  local range = p.tvb(length - ICRC.size)
  local branch = p.tree:add(mrc, range, ICRC.name .. ": " .. ICRC.title)
  branch:add_le(ICRC.by_name.icrc[4], range)
  if not mrc.prefs.check_icrc then
    branch:add(OWN.icrc_status, UNVERIFIED):set_generated()
    return
  end
  local bytes = with_lengths(ip, is_ipv4, length) .. p.tvb:raw(0, length)
  local calculated = icrc(bytes, is_ipv4 and MASK_IPV4 or MASK_IPV6)
  branch:add(OWN.icrc_calculated, calculated):set_generated()
  local good = calculated == range:le_uint()
  local item = branch:add(OWN.icrc_status, good and GOOD or BAD):set_generated()
  if not good then complain(p, item, ERRORS.ICRC) end
end

-- The line in the Info column: that of `mrc decode` without the addresses -------------------------

local function hex(high, low)
  return high == 0 and string.format("0x%x", low) or string.format("0x%x%08x", high, low)
end

local function named(names, number, otherwise)
  return names[number] or string.format(otherwise, number)
end

-- The PSNs of a SACK's bitmap as ranges: "20-22 25".
local function received(p, base_psn)
  local high, low = halves(p, SETH, "sack_bitmap")
  local runs, bits = {}, SETH.by_name.sack_bitmap[3]
  for bit_number = 0, bits - 1 do
    local half = bit_number < 32 and low or high
    if math.floor(half / 2 ^ (bit_number % 32)) % 2 == 1 then
      local run = runs[#runs]
      if run and run[2] == bit_number - 1 then
        run[2] = bit_number
      else
        runs[#runs + 1] = { bit_number, bit_number }
      end
    end
  end
  local parts = {}
  for i = 1, math.min(#runs, RUNS_SHOWN) do
    local first, to = (base_psn + runs[i][1]) % PSNS, (base_psn + runs[i][2]) % PSNS
    parts[i] = first == to and string.format("%d", first) or string.format("%d-%d", first, to)
  end
  if #runs > RUNS_SHOWN then parts[#parts + 1] = "..." end
  return table.concat(parts, " ")
end

local DETAILS = {}

DETAILS[METH] = function(p, add)
  add("msn %d", value(p, METH, "msn"))
  local rqmsn = value(p, METH, "rqmsn")
  if rqmsn ~= 0 then add("rqmsn %d", rqmsn) end
  if not p.at[RETH] then return end
  add("va %s", hex(halves(p, RETH, "va")))
  add("%d of %d B", p.payload_length, value(p, RETH, "dma_length"))
  if p.extensions[#p.extensions] == IMMDT and not p.missing[IMMDT] then
    add("imm 0x%x", p.at[IMMDT] and value(p, IMMDT, "imm") or 0)
  end
end

DETAILS[SETH] = function(p, add)
  local cack = value(p, SETH, "cack_psn")
  add("cack %d", cack)
  local ranges = received(p, cack + signed(p, SETH, "sack_offset"))
  if ranges ~= "" then add("received %s", ranges) end
  if value(p, SETH, "pr") == 1 then
    add("probe %d", value(p, SETH, "ack_psn_offset"))
  else
    add("for PSN %d", (cack + signed(p, SETH, "ack_psn_offset")) % PSNS)
  end
  add("of EV 0x%08x", value(p, SETH, "entropy"))
  local m, mpr = value(p, SETH, "m"), value(p, SETH, "mpr")
  if m ~= 0 then add("%s", named(M_NAMES, m, "m %d")) end
  if not p.at[CC_STATE] then return end
  local out_of_order, penalty = value(p, CC_STATE, "ooo_count"), value(p, CC_STATE, "rcv_cwnd_pen")
  if out_of_order ~= 0 then add("%d out of order", out_of_order) end
  if mpr ~= 0 then add("window %d", mpr * MPR_UNIT) end
  if penalty ~= 0 then add("penalty %d/128", penalty) end
end

-- Headers of which single fields are said: each field, its format, and names that go before it.
for header, fields in pairs {
  [NETH] = { { "nack_reason", "reason 0x%02x", NACK_REASON_NAMES }, { "entropy", "of EV 0x%08x" } },
  [AETH] = { { "syndrome", "syndrome 0x%02x", SYNDROME_NAMES }, { "msn", "msn %d" } },
  [PETH] = { { "probe_id", "probe %d" } },
} do
  DETAILS[header] = function(p, add)
    for _, field in ipairs(fields) do
      add("%s", named(field[3] or {}, value(p, header, field[1]), field[2]))
    end
  end
end

DETAILS[ERTH] = function(p, add)
  local mask = value(p, ERTH, "port_status_mask")
  add("%s", named(OP_NAMES, value(p, ERTH, "op"), "op %d"))
  add("ports 0x%x", mrc.prefs.ports_from_1 and math.floor(mask / 2) or mask)
end

DETAILS[EETH] = function(p, add)
  local op = value(p, EETH, "op")
  if op == 0 then op = value(p, EETH, "op_alternative") end
  add("%s", named(OP_NAMES, op, "op %d"))
end

local function number(p, first)
  if first == ERTH or first == EETH then return string.format("id %d", value(p, BTH, "psn")) end
  if first == NETH then
    return p.at[NETH] and string.format("PSN %d", value(p, NETH, "nack_psn"))
  end
  return first == METH and string.format("PSN %d", value(p, BTH, "psn"))
end

local function flags(p)
  local set = {}
  local function add(condition, name)
    if condition then set[#set + 1] = name end
  end
  add(value(p, BTH, "a") == 1, "ACK_REQ")
  add(value(p, BTH, "rtx") == 1, "RTX")
  add(p.dscp == mrc.prefs.dscp_no_trim, "NO_TRIM")
  add(p.ce, "CE")
  add(p.trimmed, p.trimmed)
  add(p.unstamped, "UNSTAMPED")
  return #set > 0 and table.concat(set, " ")
end

-- What is wrong, and which headers are missing, in brackets; nil if nothing is.
local function wrong(p)
  if not p.problem then return nil end
  local missing = #p.missing > 0 and ": " .. table.concat(p.missing, ", ") .. " missing" or ""
  return "[" .. p.problem .. missing .. "]"
end

local function line(p)
  local details = {}
  local first = p.extensions and p.extensions[1]
  if p.at[first] then
    DETAILS[first](p, function(...) details[#details + 1] = string.format(...) end)
  end
  if p.trimmed and #p.missing == 0 then details[#details + 1] = adjusted(p.is_ipv4, p.length) end
  local parts = { string.format("QP 0x%x", value(p, BTH, "dest_qpn")) }
  local function add(part)
    if part then parts[#parts + 1] = part end
  end
  add(named(OPCODE_NAMES, value(p, BTH, "opcode"), "opcode 0x%02x"))
  add(number(p, first))
  add(string.format("EV 0x%08x", p.ev))
  add(flags(p))
  add(#details > 0 and table.concat(details, ", "))
  add(wrong(p))
  return table.concat(parts, "  ")
end

-- Packets -----------------------------------------------------------------------------------------

-- One packet of `length` bytes from its BTH on; its line.
local function dissect_one(tvb, length, pinfo, root)
  local p = outside(pinfo)
  p.tvb, p.at, p.missing, p.payload_length = tvb, {}, {}, 0
  p.length = length
  p.behind = p.length - (p.trimmed and 0 or ICRC.size) -- of headers and payload
  p.tree = root:add(mrc, tvb())
  p.tree:add(OWN.ev, p.ev):set_generated()
  if p.trimmed then p.tree:add(OWN.trimmed, p.dscp):append_text(" (" .. p.trimmed .. ")"):set_generated() end

  if math.min(p.behind, tvb:captured_len()) < BTH.size then
    if p.behind < BTH.size then complain(p, p.tree, ERRORS.TOO_SHORT) end
    note(p, ERRORS.TOO_SHORT)
    miss(p, BTH)
    return string.format("EV 0x%08x  %s", p.ev, wrong(p))
  end
  p.extensions = EXTENSIONS[tvb(0, 1):uint()]
  p.is_data = p.extensions and p.extensions[1] == METH
  local at = add_headers(p)
  if at then add_payload(p, at) end
  check_icrc(p, p.ip, p.is_ipv4)
  local text = line(p)
  p.tree:append_text(", " .. text)
  return text
end

-- The size of a packet without payload, by its opcode; nil for data.
local function exact_size(opcode)
  local extensions = EXTENSIONS[opcode]
  if not extensions or extensions[1] == METH then return nil end
  local size = BTH.size + ICRC.size
  for _, header in ipairs(extensions) do size = size + header.size end
  return size
end

-- Whether a packet begins after every `size` bytes: each of the first one's QP with the PSN behind
-- the one before, or all of an opcode without payload that is as long.
local function repeats(bytes, size)
  local exact = exact_size(bytes:byte(1))
  local function psn(at) return (bytes:byte(at + 10) * 256 + bytes:byte(at + 11)) * 256 + bytes:byte(at + 12) end
  for number = 1, math.floor((#bytes - BTH.size) / size) do
    local at = number * size
    if exact then
      if at + size <= #bytes and exact_size(bytes:byte(at + 1)) ~= size then return false end
    elseif bytes:sub(at + 3, at + 4) ~= bytes:sub(3, 4) or bytes:sub(at + 6, at + 8) ~= bytes:sub(6, 8)
      or psn(at) ~= (psn(0) + number) % PSNS or not EXTENSIONS[bytes:byte(at + 1)] then
      return false
    end
  end
  return true
end

-- The size of the packets that a host joined in this frame; nil if it holds one. All have the same,
-- but the last, which may be shorter.
local function joined_size(tvb, length)
  if tvb:captured_len() < 2 * BTH.size then return nil end
  local bytes = tvb:raw(0, math.min(tvb:captured_len(), length))
  local size = exact_size(bytes:byte(1))
  if size then return size < length and #bytes >= size + BTH.size and repeats(bytes, size) and size or nil end
  local again, at = bytes:sub(3, 8), BTH.size + ICRC.size
  for _ = 1, SIZES_MAX do
    at = bytes:find(again, at + 1, true)
    if not at then return nil end
    size = at - 3
    if size % 4 == 0 and #bytes >= size + BTH.size and repeats(bytes, size) then return size end
  end
end

local function dissect(tvb, pinfo, root)
  pinfo.cols.protocol = "MRC"
  -- a mirror's copy, or a frame whose tail is missing, is shorter than its lengths say; and what a
  -- switch trimmed may be
  local length, trimmed = tvb:reported_len(), outside(pinfo).trimmed
  if not trimmed then length = math.max(length, last(udp_length).value - UDP_BYTES) end
  local size = not trimmed and joined_size(tvb, length)
  if not size then
    pinfo.cols.info = dissect_one(tvb, length, pinfo, root)
    return
  end
  local total = math.ceil(length / size)
  local branch = root:add(mrc, tvb(), string.format("%d joined packets", total))
  branch:add(OWN.joined, total):set_generated()
  local first
  for at = 0, tvb:captured_len() - 1, size do
    local bytes = math.min(size, length - at)
    local part = tvb(at, math.min(bytes, tvb:captured_len() - at)):tvb()
    local text = dissect_one(part, bytes, pinfo, branch)
    first = first or text
  end
  pinfo.cols.info = string.format("%d packets: %s", total, first)
end

local function is_port(port)
  for first, to in mrc.prefs.ports:gmatch("(%d+)%-?(%d*)") do
    if port >= tonumber(first) and port <= (tonumber(to) or tonumber(first)) then return true end
  end
  return false
end

local function is_mrc(tvb, pinfo)
  return is_port(pinfo.dst_port) and tvb:captured_len() > 0
    and math.floor(tvb(0, 1):uint() / 32) == MRC_OPCODES
end

function mrc.dissector(tvb, pinfo, root)
  dissect(tvb, pinfo, root)
  return tvb:captured_len()
end
DissectorTable.get("udp.port"):add_for_decode_as(mrc)

-- A source port is half an EV and may be any number, that of DNS or VXLAN too, and Wireshark asks
-- the dissector of the lower port first; unless heuristic ones come before, as they do from here on.
-- What this one refuses goes to Wireshark's own dissectors: RoCE has the same port.
mrc:register_heuristic("udp", function(tvb, pinfo, root)
  if not is_mrc(tvb, pinfo) then return false end
  dissect(tvb, pinfo, root)
  return true
end)
set_preference("udp.try_heuristic_first", true)

-- A mirror of Spectrum switches: 22 bytes of its own between GRE and the frame.
local mirror = Proto("mrc_mirror", "Mirrored frame")
local ethernet = Dissector.get("eth_withoutfcs")
function mirror.dissector(tvb, pinfo, root)
  if tvb:captured_len() < 22 then return 0 end
  return 22 + ethernet:call(tvb(22):tvb(), pinfo, root)
end
DissectorTable.get("gre.proto"):add(0x8949, mirror)
