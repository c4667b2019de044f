#include "text/uri.h"

#include "text/unicode.h"

namespace llamay::grammar {
namespace {

struct Uri {
  std::string scheme, authority, path, query, fragment;
  bool has_authority = false, has_query = false, has_fragment = false;
};

Uri parse(std::string_view s) {
  Uri u;
  if (auto h = s.find('#'); h != s.npos)
    u.has_fragment = true, u.fragment = s.substr(h + 1), s = s.substr(0, h);
  if (auto q = s.find('?'); q != s.npos) u.has_query = true, u.query = s.substr(q + 1), s = s.substr(0, q);
  if (auto c = s.find(':'); c != s.npos && c > 0 && s.find('/') > c)
    u.scheme = s.substr(0, c), s = s.substr(c + 1);
  if (s.substr(0, 2) == "//") {
    s = s.substr(2);
    auto e = s.find('/');
    u.has_authority = true;
    u.authority = s.substr(0, e);
    s = e == s.npos ? std::string_view{} : s.substr(e);
  }
  u.path = s;
  return u;
}

std::string remove_dots(std::string_view in) {
  std::string out;
  size_t i = 0;
  while (i < in.size()) {
    size_t e = in.find('/', i + 1);
    std::string_view seg = in.substr(i, e == in.npos ? in.npos : e - i);  // with its leading slash, if any
    std::string_view name = seg.substr(!seg.empty() && seg[0] == '/');
    bool last = e == in.npos;
    if (name == ".") {
      if (last) out += "/";
    } else if (name == "..") {
      auto cut = out.rfind('/');
      out.resize(cut == out.npos ? 0 : cut);
      if (last) out += "/";
    } else {
      out += seg;
    }
    i = last ? in.size() : e;
  }
  return out;
}

}  // namespace

std::string resolve_uri(std::string_view base, std::string_view reference) {
  Uri b = parse(base), r = parse(reference), t;
  if (!r.scheme.empty()) {
    t = r;
    if (t.has_authority) t.path = remove_dots(t.path);
  } else {
    t.scheme = b.scheme;
    if (r.has_authority) {
      t.has_authority = true, t.authority = r.authority, t.path = remove_dots(r.path);
      t.has_query = r.has_query, t.query = r.query;
    } else {
      t.has_authority = b.has_authority, t.authority = b.authority;
      if (r.path.empty()) {
        t.path = b.path;
        t.has_query = r.has_query || b.has_query;
        t.query = r.has_query ? r.query : b.query;
      } else {
        if (r.path[0] == '/') {
          t.path = remove_dots(r.path);
        } else {
          auto cut = b.path.rfind('/');
          std::string merged =
              b.has_authority && b.path.empty()
                  ? "/" + r.path
                  : (cut == b.path.npos ? std::string() : b.path.substr(0, cut + 1)) + r.path;
          t.path = remove_dots(merged);
        }
        t.has_query = r.has_query, t.query = r.query;
      }
    }
  }
  std::string out;
  if (!t.scheme.empty()) out += t.scheme + ":";
  if (t.has_authority) out += "//" + t.authority;
  out += t.path;
  if (t.has_query) out += "?" + t.query;
  if (r.has_fragment) out += "#" + r.fragment;
  return out;
}

void split_fragment(std::string_view uri, std::string& document, std::string& fragment) {
  auto h = uri.find('#');
  document = uri.substr(0, h);
  fragment.clear();
  if (h == uri.npos) return;
  auto byte = [&](size_t at) { return static_cast<uint8_t>(uri[at]); };
  for (size_t i = h + 1; i < uri.size(); ++i) {
    if (uri[i] == '%' && i + 2 < uri.size() && hex_value(byte(i + 1)) >= 0 && hex_value(byte(i + 2)) >= 0) {
      fragment.push_back(static_cast<char>(hex_value(byte(i + 1)) * 16 + hex_value(byte(i + 2))));
      i += 2;
    } else {
      fragment.push_back(uri[i]);
    }
  }
}

}  // namespace llamay::grammar
