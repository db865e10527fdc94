package wolt

import (
	"net/url"
	"strings"
)

// maxSegment bounds what goes into a link as one segment of its path.
const maxSegment = 200

// link is the public page of a venue:
// https://wolt.com/{language}/{country}/{city}/restaurant/{slug}.
func link(in city, slug string) string {
	return linkBase + strings.Join([]string{
		url.PathEscape(strings.ToLower(in.country)),
		url.PathEscape(in.slug),
		"restaurant",
		url.PathEscape(slug),
	}, "/")
}

// safeSegment reports whether a slug from Wolt can be one segment of a link. Escaping takes care of slashes, but not of
// dots, which would walk up.
func safeSegment(slug string) bool {
	return slug != "" && len(slug) <= maxSegment && strings.Trim(slug, ".") != "" &&
		!strings.ContainsFunc(slug, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' })
}
