package source

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"golang.org/x/text/language"

	"github.com/expediter-io/expediter/internal/lazyregexp"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer/charset"
	"github.com/expediter-io/expediter/services/importer/failure"
)

// maxURL is the longest URL that contracts.ImportJob accepts.
const maxURL = 2048

// target is a parsed request.
type target struct {
	language string // the canonical tag of the wanted language; may be empty
	id       string // the identity
	kind     string // the source type
	url      string // the canonical address
	video    string // the id of a YouTube video
}

// Site returns the host and port of an address, which are the same in all its spellings and work or fail together. It is "" for a
// file.
func Site(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return siteOf(u)
}

func siteOf(u *url.URL) string {
	at := *u
	if setHost(&at) != nil {
		return ""
	}
	return net.JoinHostPort(at.Hostname(), cmp.Or(at.Port(), map[string]string{"http": "80", "https": "443"}[at.Scheme]))
}

// Identify returns the identity of a source, as [Sources.Identify] of sources that take files does. The error is an [*Error].
func Identify(request Request) (id string, err error) {
	t, err := identify(request)
	return t.id, err
}

// identify returns the target of a request, with the configuration of s. Its error is an *Error.
func (s *Sources) identify(request Request) (target, error) {
	t, err := identify(request)
	if err == nil && s.config.Files == nil && isFile(t.url) {
		return t, failed(failure.Unavailable, nil, "Files are not taken here, only addresses")
	}
	return t, err
}

// identify returns the target of a request. Its error is an *Error.
func identify(request Request) (target, error) {
	t, err := locate(request)
	if err != nil {
		return t, err
	}
	name, err := charset.Canonical(request.Encoding)
	if err != nil {
		return target{}, failed(failure.Unavailable, err, "%s", err)
	}
	if name != "" {
		t.id += ":as-" + name
	}
	if request.Language == "" {
		return t, nil
	}
	tag, err := language.Parse(request.Language)
	if _, certain := tag.Base(); err != nil || tag == language.Und || certain == language.No {
		return target{}, failed(failure.Unavailable, err, "The language %q is not known: want a tag such as en or pt-BR",
			redact.Clip(line(request.Language), 64))
	}
	t.language = tag.String()
	t.id += ":" + t.language
	return t, nil
}

// locate is identify without the language.
func locate(request Request) (target, error) {
	u, err := canonical(request.URL)
	if err != nil {
		return target{}, err
	}
	kind := request.Type
	if kind == "" {
		kind = kindOf(u)
	}
	switch kind {
	case TypeYouTube:
		id, ok := videoID(u)
		if !ok {
			return target{}, failed(failure.Unavailable, nil, "The address does not name a YouTube video: want one such as "+
				"https://www.youtube.com/watch?v=, followed by the 11 characters of the video")
		}
		return target{id: kind + ":" + id, kind: kind, url: "https://www.youtube.com/watch?v=" + id, video: id}, nil
	case TypeCaptions, TypeWeb, TypePhoto:
		sum := sha256.Sum256([]byte(u.String()))
		return target{id: kind + ":" + hex.EncodeToString(sum[:16]), kind: kind, url: u.String()}, nil
	default:
		return target{}, failed(failure.Unavailable, nil, "The source type %q is not known: want %s, %s, %s or %s",
			redact.Clip(line(kind), 64), TypeYouTube, TypeCaptions, TypeWeb, TypePhoto)
	}
}

// schemeless matches an address without a scheme, as browsers show it: a name with a dot that ends in letters, and what may follow it.
var schemeless = lazyregexp.New(`^(?://)?(?:[\p{L}\p{N}-]+\.)+(?:\p{L}{2,}|xn--[a-zA-Z0-9-]+)\.?(?::\d{1,5})?(?:[/?#]\S*)?$`)

// Complete adds https to an address without a scheme, such as example.com/cake, and returns any other text unchanged.
func Complete(address string) string {
	if schemeless.MatchString(address) {
		return "https://" + strings.TrimPrefix(address, "//")
	}
	return address
}

// canonical checks an address and returns its canonical form: with a scheme, host in lower case and ASCII, no default port,
// no fragment, and no parameters that only track visitors.
func canonical(address string) (*url.URL, error) {
	address = Complete(address)
	refuse := func(err error, why string) (*url.URL, error) {
		return nil, failed(failure.Unavailable, err, "The address cannot be used: %s", why)
	}
	if len(address) > maxURL {
		return refuse(nil, "it is longer than 2048 bytes")
	}
	if file, err := contracts.ParseFileURL(address); err == nil {
		return &url.URL{Scheme: fileScheme, Opaque: strings.TrimPrefix(file.URL(), fileScheme+":")}, nil
	}
	if strings.ContainsFunc(address, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }) {
		return refuse(nil, "it holds a space or a control character")
	}
	u, err := url.Parse(address)
	if err != nil || !utf8.ValidString(address) {
		return refuse(err, "it is not a URL")
	}
	u.Scheme = strings.ToLower(u.Scheme)
	if u.Scheme != "http" && u.Scheme != "https" || u.Opaque != "" {
		return refuse(nil, "it has to begin with http:// or https://")
	}
	if u.User != nil {
		return refuse(nil, "it holds a user name")
	}
	if err := setHost(u); err != nil {
		return refuse(err, "its host is not valid")
	}
	u.Fragment, u.RawFragment = "", ""
	u.Path = cmp.Or(u.Path, "/")
	u.RawQuery, u.ForceQuery = withoutTracking(u.RawQuery), false
	if len(u.String()) > maxURL {
		return refuse(nil, "it is longer than 2048 bytes")
	}
	return u, nil
}

// setHost writes the host of an address in lower case and ASCII, without a default port.
func setHost(u *url.URL) error {
	host, port := strings.TrimSuffix(u.Hostname(), "."), u.Port()
	if ip, err := netip.ParseAddr(host); err == nil && ip.Zone() == "" {
		host = ip.Unmap().String()
	} else {
		ascii, err := idna.Lookup.ToASCII(host)
		if err != nil {
			return err
		}
		if host = strings.TrimSuffix(ascii, "."); numeric.MatchString(host) {
			return &url.Error{Op: "parse", URL: u.Host, Err: url.InvalidHostError(u.Host)}
		}
	}
	if host == "" || len(host) > 253 { // DNS has no longer names
		return &url.Error{Op: "parse", URL: u.Host, Err: url.InvalidHostError(u.Host)}
	}
	if _, err := strconv.ParseUint(port, 10, 16); port != "" && err != nil {
		return &url.Error{Op: "parse", URL: u.Host, Err: err}
	}
	if u.Scheme == "http" && port == "80" || u.Scheme == "https" && port == "443" {
		port = ""
	}
	switch {
	case port != "":
		u.Host = net.JoinHostPort(host, port)
	case strings.Contains(host, ":"):
		u.Host = "[" + host + "]"
	default:
		u.Host = host
	}
	return nil
}

// numeric matches a name that ends in a number. Browsers and resolvers take it for an address: 127.1, 0x7f.1, 2130706433.
var numeric = lazyregexp.New(`(^|\.)(0x[0-9a-f]*|[0-9]+)$`)

// tracking lists parameters that identify a click, a visitor or a mailing and choose no content: those for all sites in the rules of
// ClearURLs (https://gitlab.com/ClearURLs/rules, globalRules) and in the query filter of Brave (brave-core,
// components/query_filter), as far as they are ids, and those that Google and Meta document for their advertisements and links.
// Names that choose the content of some sites, such as ref, source, s and mc, are not among them.
var tracking = strings.Fields("__hsfp __hssc __hstc __s _branch_match_id _ga _gl _hsenc _hsmi _ke _kx _openstat dclid epik fb_action_ids " +
	"fb_action_types fbclid gad_campaignid gad_source gbraid gclid gclsrc hsctatracking igsh igshid irclickid li_fat_id mc_cid mc_eid mc_tc " +
	"mibextid mkt_tok ml_subscriber ml_subscriber_hash msclkid ndclid oly_anon_id oly_enc_id rb_clickid rdt_cid s_cid sccid srsltid ttclid " +
	"twclid vero_conv vero_id wbraid wickedid yclid ymclid ysclid")

// shareID matches the value of si by which YouTube, Spotify and others recognize who has shared a link. A shorter si may be a page.
var shareID = lazyregexp.New(`^si=[\w-]{16,}$`)

// withoutTracking drops parameters that track visitors. The others keep their order and their spelling.
func withoutTracking(query string) string {
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(strings.ToLower(part), "=")
		if part != "" && !strings.HasPrefix(name, "utm_") && !slices.Contains(tracking, name) && !shareID.MatchString(part) {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, "&")
}

// kindOf returns the source type of an address.
func kindOf(u *url.URL) string {
	if isYouTube(u) {
		return TypeYouTube
	}
	name := u.Path
	if file, err := contracts.ParseFileURL(u.String()); err == nil {
		name = cmp.Or(file.Name, ".txt")
	}
	switch strings.ToLower(path.Ext(name)) {
	case ".vtt", ".srt", ".txt", ".md", ".markdown":
		return TypeCaptions
	case ".jpg", ".jpeg", ".png", ".webp", ".gif", ".heic":
		return TypePhoto
	default:
		return TypeWeb
	}
}

// isYouTube reports whether a canonical address is one of YouTube's.
func isYouTube(u *url.URL) bool { return slices.Contains(youTubeHosts, u.Host) }

var youTubeHosts = []string{
	"youtube.com", "www.youtube.com", "m.youtube.com", "music.youtube.com", "youtube-nocookie.com", "www.youtube-nocookie.com",
	"youtu.be", "www.youtu.be",
}

// videoID returns the id of the video that an address of YouTube names. Nothing but the 11 characters of its alphabet passes.
func videoID(u *url.URL) (string, bool) {
	if !isYouTube(u) {
		return "", false
	}
	// People paste "&amp;v=…" and "?v=…?t=1", too.
	named := strings.FieldsFunc(u.RawQuery, func(r rune) bool { return strings.ContainsRune("&;?", r) })
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	switch {
	case strings.HasSuffix(u.Host, "youtu.be"):
		named = append(named, "v="+parts[0])
	case len(parts) >= 2 && slices.Contains([]string{"e", "embed", "live", "shorts", "v", "watch"}, parts[0]):
		named = append(named, "v="+parts[1])
	}
	for _, name := range named {
		if id := videoIDs.FindStringSubmatch(name); len(id) > 1 && id[1] != "videoseries" && id[1] != "live_stream" { // players of lists
			return id[1], true
		}
	}
	return "", false
}

var videoIDs = lazyregexp.New(`^v=([\w-]{11})(?:[^\w-]|$)`)
