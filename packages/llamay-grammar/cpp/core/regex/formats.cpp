#include "regex/formats.h"

#include <mutex>
#include <string>

namespace llamay::grammar {
namespace {

const std::string kDate =
    "(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|"
    "02-(?:0[1-9]|1\\d|2[0-8]))|(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-"
    "02-29)";
// RFC 3339; the leap second only in UTC, where it is known to be the last second of a day.
const std::string kTime =
    "(?:(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d+)?(?:[Zz]|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)|"
    "23:59:60(?:\\.\\d+)?(?:[Zz]|[+-]00:00))";
// RFC 3339, appendix A.
const std::string kDurTime = "T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S)";
const std::string kDuration =
    "P(?:(?:\\d+Y(?:\\d+M(?:\\d+D)?)?|\\d+M(?:\\d+D)?|\\d+D)(?:" + kDurTime + ")?|" + kDurTime + "|\\d+W)";
const std::string kOctet = "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
const std::string kIpv4 = kOctet + "(?:\\." + kOctet + "){3}";
const std::string kH16 = "[0-9A-Fa-f]{1,4}";
const std::string kLs32 = "(?:" + kH16 + ":" + kH16 + "|" + kIpv4 + ")";
// RFC 3986, IPv6address.
const std::string kIpv6 =
    "(?:(?:" + kH16 + ":){6}" + kLs32 + "|::(?:" + kH16 + ":){5}" + kLs32 + "|(?:" + kH16 + ")?::(?:" + kH16 +
    ":){4}" + kLs32 + "|(?:(?:" + kH16 + ":){0,1}" + kH16 + ")?::(?:" + kH16 + ":){3}" + kLs32 +
    "|(?:(?:" + kH16 + ":){0,2}" + kH16 + ")?::(?:" + kH16 + ":){2}" + kLs32 + "|(?:(?:" + kH16 + ":){0,3}" +
    kH16 + ")?::" + kH16 + ":" + kLs32 + "|(?:(?:" + kH16 + ":){0,4}" + kH16 + ")?::" + kLs32 +
    "|(?:(?:" + kH16 + ":){0,5}" + kH16 + ")?::" + kH16 + "|(?:(?:" + kH16 + ":){0,6}" + kH16 + ")?::)";
const std::string kLabel = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
// Labels with hyphens in the third and fourth place are A-labels, whose validity needs tables: left out.
const std::string kNoALabel = "(?!(?:.*[.@])?[^.@][^.@]--)";
const std::string kHostname = kLabel + "(?:\\." + kLabel + ")*";
// Letters that are valid in an internationalised label wherever they stand.
const std::string kIdnLetter =
    "[A-Za-z0-9\\u00DF-\\u00F6\\u00F8-\\u00FF\\u03AC-\\u03CE\\u0430-\\u045F\\u05D0-\\u05EA\\u3041-"
    "\\u3096\\u4E00-\\u9FA5"
    "\\uAC00-\\uD7A3]";
const std::string kIdnLabel = kIdnLetter +
                              "(?:[A-Za-z0-9\\u00DF-\\u00F6\\u00F8-\\u00FF\\u03AC-\\u03CE\\u0430-\\u045F"
                              "\\u05D0-\\u05EA\\u3041-\\u3096\\u4E00-\\u9FA5\\uAC00-\\uD7A3-]{0,14}" +
                              kIdnLetter + ")?";
const std::string kIdnHostname = kIdnLabel + "(?:\\." + kIdnLabel + ")*";

const std::string kUnicode =
    "\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF\\u{10000}-\\u{1FFFD}\\u{20000}-\\u{2FFFD}\\u{30000}-\\u{"
    "3FFFD}";

struct UriParts {
  std::string uri, reference;
};

// RFC 3986 (and, with `extra` characters, RFC 3987).
UriParts uri_parts(const std::string& extra) {
  auto chars = [&](const std::string& more) {
    return "(?:[A-Za-z0-9._~!$&'()*+,;=" + more + extra + "-]|%[0-9A-Fa-f]{2})";
  };
  std::string pchar = chars(":@"), no_colon = chars("@"), query = chars(":@/?");
  std::string authority = "(?:" + chars(":") + "*@)?(?:\\[(?:" + kIpv6 +
                          "|[vV][0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\\]|" + chars("") +
                          "*)(?::\\d*)?";
  std::string abempty = "(?:/" + pchar + "*)*";
  std::string absolute = "/(?:" + pchar + "+" + abempty + ")?";
  std::string tail = "(?:\\?" + query + "*)?(?:#" + query + "*)?";
  std::string uri = "[A-Za-z][A-Za-z0-9+.-]*:(?://" + authority + abempty + "|" + absolute + "|" + pchar +
                    "+" + abempty + "|)" + tail;
  std::string relative =
      "(?://" + authority + abempty + "|" + absolute + "|" + no_colon + "+" + abempty + "|)" + tail;
  return {uri, "(?:" + uri + "|" + relative + ")"};
}

std::string uri_template() {  // RFC 6570
  std::string literal = "[!#$&(-;=?-\\[\\]_a-z~" + kUnicode + "]|%[0-9A-Fa-f]{2}";
  std::string varchar = "(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})";
  std::string varname = varchar + "(?:\\.?" + varchar + ")*";
  std::string varspec = varname + "(?::[1-9]\\d{0,3}|\\*)?";
  return "(?:" + literal + "|\\{[+#./;?&=,!@|]?" + varspec + "(?:," + varspec + ")*\\})*";
}

// The regular expressions of ECMA-262 with the flag u are no regular language; of these, groups are nested at
// most three deep and lookaheads and lookbehinds hold no others. With `named`, groups may have names, are not
// nested, and of two names one begins in another third of the alphabet than the other, so that none comes
// twice.
std::string regex_subset(bool named) {
  const std::string hex = "[0-9A-Fa-f]";
  const std::string escape =
      "\\\\(?:[dDwWsSfnrtv^$\\\\.*+?()\\[\\]{}|/]|x" + hex + "{2}|u[0-9A-CEFa-cef]" + hex +
      "{3}|u\\{(?:" + hex + "{1,3}|[0-9A-CEFa-cef]" + hex +
      "{3})\\}|[pP]\\{(?:L[ultmo]?|M[nce]?|N[dlo]?|P[cdseifo]?|S[mcko]?|Z[slp]?|C[cf]?)\\})";
  const std::string range = "(?:a-[a-z]|A-[A-Z]|0-[0-9]|1-[1-9]|[b-l]-[m-z]|[B-L]-[M-Z]|[2-4]-[5-9])";
  const std::string cls = "\\[\\^?-?(?:[^\\\\\\]-]|\\\\[-b]|" + escape + "|" + range + ")*-?\\]";
  std::string counts;  // "n,m", n not above m
  for (char i = '0'; i <= '9'; ++i) {
    counts += std::string(1, i) + ",[" + i + "-9]|";
    if (i == '0') continue;
    counts += std::string(1, i) + "0," + i + "\\d|";
    if (i < '9') counts += std::string(1, i) + "\\d,[" + static_cast<char>(i + 1) + "-9]\\d|";
  }
  counts += "\\d,[1-9]\\d{1,3}|[1-9]\\d,[1-9]\\d{2,3}|[1-9]\\d\\d,[1-9]\\d{3}";
  const std::string quantifier = "(?:(?:[*+?]|\\{\\d{1,4},?\\}|\\{(?:" + counts + ")\\})(?:\\?)?)?";
  const std::string piece =
      "(?:[^\\\\^$.*+?()\\[\\]{}|]|\\.|" + escape + "|" + cls + ")" + quantifier + "|[\\^$|]|\\\\[bB]";
  const std::string flat = "(?:" + piece + ")*", look = "\\(\\?<?[=!]";
  if (named) {
    std::string out;
    for (const char* third : {"A-Ha-h_", "I-Pi-p", "Q-Zq-z"}) {
      const std::string opens = std::string("[\\s\\S]*\\(\\?<[") + third + "]";
      out += "(?!" + opens + opens + ")";
    }
    return out + "(?:" + piece + "|\\((?:\\?:|\\?<[A-Za-z_]\\w*>)?" + flat + "\\)" + quantifier + ")*";
  }
  std::string body = flat;
  for (int depth = 0; depth < 3; ++depth)
    body = "(?:" + piece + "|" + look + (depth == 2 ? body : flat) + "\\)|\\((?:\\?:)?" + body + "\\)" +
           quantifier + ")*";
  return body;
}

// Remembered, because the automaton is the largest one of all formats.
const Pattern& regex_format(Budget& budget) {
  static std::mutex lock;
  static std::optional<Pattern> made;
  const std::lock_guard<std::mutex> hold(lock);
  if (!made)
    made = compile_pattern("(?:" + regex_subset(false) + "|" + regex_subset(true) + ")", true, budget);
  return *made;
}

}  // namespace

std::optional<Pattern> format_language(std::string_view name, Budget& budget) {
  const std::string text = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]";
  const std::string idn_text = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~" + kUnicode + "-]";
  // RFC 5321 limits the local part to 64 octets.
  const std::string local = "(?=[^@]{1,64}@)";
  const std::string quoted = "\"(?:[ !#-\\[\\]-~]|\\\\[ -~]){0,31}\"";
  std::string source;
  uint32_t max = kInf;
  if (name == "date") {
    source = kDate;
  } else if (name == "time") {
    source = kTime;
  } else if (name == "date-time") {
    source = kDate + "[Tt]" + kTime;
  } else if (name == "duration") {
    source = kDuration;
  } else if (name == "ipv4") {
    source = kIpv4;
  } else if (name == "ipv6") {
    source = kIpv6;
  } else if (name == "hostname") {
    source = kNoALabel + kHostname, max = 253;
  } else if (name == "idn-hostname") {
    source = kNoALabel + kIdnHostname, max = 63;
  } else if (name == "email") {
    source = kNoALabel + "(?:" + local + text + "+(?:\\." + text + "+)*|" + quoted + ")@(?:" + kHostname +
             "|\\[(?:" + kIpv4 + "|IPv6:" + kIpv6 + ")\\])";
    max = 254;
  } else if (name == "idn-email") {
    source = kNoALabel + "(?:" + local + idn_text + "+(?:\\." + idn_text + "+)*|" + quoted +
             ")@(?:" + kHostname + "|" + kIdnHostname + ")";
    max = 254;
  } else if (name == "uri") {
    source = uri_parts("").uri;
  } else if (name == "uri-reference") {
    source = uri_parts("").reference;
  } else if (name == "iri") {
    source = uri_parts(kUnicode).uri;
  } else if (name == "iri-reference") {
    source = uri_parts(kUnicode).reference;
  } else if (name == "uri-template") {
    source = uri_template();
  } else if (name == "json-pointer") {
    source = "(?:/(?:[^~/]|~[01])*)*";
  } else if (name == "relative-json-pointer") {
    source = "(?:0|[1-9]\\d*)(?:#|(?:/(?:[^~/]|~[01])*)*)";
  } else if (name == "uuid") {
    source = "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}";
  } else if (name == "regex") {
    return regex_format(budget);
  } else {
    return std::nullopt;
  }
  Pattern p = compile_pattern(source, true, budget);
  p.max = std::min(p.max, max);
  return p;
}

}  // namespace llamay::grammar
