// Resolving references of schemas: RFC 3986, section 5.
#pragma once

#include <string>
#include <string_view>

namespace llamay::grammar {

std::string resolve_uri(std::string_view base, std::string_view reference);
// Splits at '#'; the fragment is percent-decoded.
void split_fragment(std::string_view uri, std::string& document, std::string& fragment);

}  // namespace llamay::grammar
