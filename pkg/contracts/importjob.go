package contracts

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"path"
	"strings"
	"time"
	"unicode"
)

// ImportPriority orders import jobs. Each is a token of the job's subject.
type ImportPriority string

// The priorities.
const (
	// PriorityHigh is for an import that a person waits for.
	PriorityHigh ImportPriority = "high"
	// PriorityNormal is the default.
	PriorityNormal ImportPriority = "normal"
	// PriorityLow is for batches.
	PriorityLow ImportPriority = "low"
)

// ImportJob asks for a recipe to be made from a source.
type ImportJob struct {
	// JobID identifies the job; a second one with the same id is the same job. It may name a folder, so
	// slashes, backslashes, ".." and control characters are refused.
	JobID string `json:"job_id" jsonschema:"minLength=1,maxLength=320"`
	// OwnerID is the owner of the recipe.
	OwnerID string `json:"owner_id" jsonschema:"minLength=1,maxLength=320" wire:"private"`
	// SourceType is the kind of source. Defaults to the kind that the URL looks like.
	SourceType string `json:"source_type,omitempty" jsonschema:"maxLength=64,pattern=^[A-Za-z0-9_-]*$"`
	// URL is the source: an http or https URL, or the URL of an uploaded file by its content (RFC 6920):
	// ni:///sha-256;… and optionally ?name=soup.vtt.
	URL string `json:"url" jsonschema:"format=uri,minLength=1,maxLength=2048"`
	// Language chooses among the languages of a source, and is assumed for a source that names none: a BCP 47 tag, such
	// as "pt-BR". Defaults to the spoken language.
	Language string `json:"language,omitempty" jsonschema:"maxLength=64,pattern=^[A-Za-z0-9_-]*$"`
	// Encoding is that of a file or page that is not UTF-8: a label of the Encoding Standard, such as "windows-1251".
	// Defaults to the encoding that the source declares, or else to the likeliest one.
	Encoding string `json:"encoding,omitempty" jsonschema:"maxLength=64,pattern=^[A-Za-z0-9_-]*$"`
	// Priority is high, normal or low. Defaults to normal.
	Priority ImportPriority `json:"priority,omitempty" jsonschema:"enum=high,enum=normal,enum=low"`
	// RequestedAt is when the job was requested; optional.
	RequestedAt time.Time `json:"requested_at,omitzero"`
}

// Validate checks all fields.
func (j ImportJob) Validate() error {
	var c checks
	c.fileID("/job_id", j.JobID)
	c.id("/owner_id", j.OwnerID)
	c.optionalName("/source_type", j.SourceType)
	if j.URL == "" {
		c.add("/url", "is required")
	} else {
		c.source("/url", j.URL)
	}
	c.optionalName("/language", j.Language)
	c.optionalName("/encoding", j.Encoding)
	if j.Priority != "" {
		c.oneOf("/priority", string(j.Priority), string(PriorityHigh), string(PriorityNormal), string(PriorityLow))
	}
	c.timestamp("/requested_at", j.RequestedAt)
	return c.In("ImportJob")
}

// ImportState is the state of an import job.
type ImportState string

// The states. READY and FAILED are final.
const (
	// ImportQueued: the job was accepted.
	ImportQueued ImportState = "QUEUED"
	// ImportRunning: a worker has started the job.
	ImportRunning ImportState = "RUNNING"
	// ImportReady: the recipe exists.
	ImportReady ImportState = "READY"
	// ImportFailed: there will be no recipe; Code says why.
	ImportFailed ImportState = "FAILED"
)

// Final reports whether the state never changes again.
func (s ImportState) Final() bool { return s == ImportReady || s == ImportFailed }

// ImportCode names the reason why an import failed. Readers accept unknown codes.
type ImportCode string

// ImportStatus is the state of an import job: the value in bucket import-jobs and the body of a status update, whose
// address names the job instead.
type ImportStatus struct {
	// JobID is the id of the job; optional where the address has it.
	JobID string `json:"job_id,omitempty" jsonschema:"maxLength=320"`
	// Status is QUEUED, RUNNING, READY or FAILED.
	Status ImportState `json:"status" jsonschema:"enum=QUEUED,enum=RUNNING,enum=READY,enum=FAILED"`
	// RecipeID is the id of the recipe when Status is READY.
	RecipeID string `json:"recipe_id,omitempty" jsonschema:"maxLength=320"`
	// Code is the class of the error when Status is FAILED.
	Code ImportCode `json:"code,omitempty" jsonschema:"maxLength=64,pattern=^[A-Za-z0-9_-]*$"`
	// Error is the error in words, for a person.
	Error string `json:"error,omitempty" jsonschema:"maxLength=1024"`
	// Step is the current step, or the one that failed.
	Step string `json:"step,omitempty" jsonschema:"maxLength=64,pattern=^[A-Za-z0-9_-]*$"`
	// Progress is the finished part of the step, 0 to 1; 0 when that is not known.
	Progress float64 `json:"progress,omitempty" jsonschema:"minimum=0,maximum=1"`
	// Attempt counts the attempts from 1.
	Attempt int `json:"attempt,omitempty" jsonschema:"minimum=0"`
	// UpdatedAt is when the state was entered.
	UpdatedAt time.Time `json:"updated_at,omitzero"`
}

// Validate checks the fields and that recipe, code and status agree.
func (s ImportStatus) Validate() error {
	var c checks
	if s.JobID != "" {
		c.fileID("/job_id", s.JobID)
	}
	c.oneOf("/status", string(s.Status), string(ImportQueued), string(ImportRunning), string(ImportReady), string(ImportFailed))
	c.optionalID("/recipe_id", s.RecipeID)
	c.Add((s.Status == ImportReady) != (s.RecipeID != ""), "/recipe_id", "must be there when status is READY, and only then")
	c.optionalName("/code", string(s.Code))
	c.Add((s.Status == ImportFailed) != (s.Code != ""), "/code", "must be there when status is FAILED, and only then")
	c.text("/error", s.Error)
	c.optionalName("/step", s.Step)
	c.Add(!(s.Progress >= 0 && s.Progress <= 1), "/progress", "must be 0 to 1")
	c.Add(s.Attempt < 0, "/attempt", "must not be negative")
	c.timestamp("/updated_at", s.UpdatedAt)
	return c.In("ImportStatus")
}

// fileScheme is the scheme of the URLs of files.
const fileScheme = "ni"

// maxFileName bounds the name of a file in its URL, in bytes.
const maxFileName = 200

// fileAlgorithm is the only algorithm of RFC 6920 that is used here.
const fileAlgorithm = "/sha-256;"

// errFileURL is returned for a URL that is not the URL of a file.
var errFileURL = fmt.Errorf("%w: not the URL of a file: want ni:///sha-256; and the digest in base64url", ErrInvalid)

// File is a parsed URL of a file.
type File struct {
	// Digest is the SHA-256 of the content.
	Digest [sha256.Size]byte
	// Name is the name of the file, without folders; may be empty.
	Name string
}

// NewFile names a file by its content. Only the last segment of the name is kept, without control characters, and at
// most 200 bytes of it.
func NewFile(name string, content []byte) File {
	return File{Digest: sha256.Sum256(content), Name: fileName(name)}
}

// fileName returns the part of a name that is kept. It is idempotent.
func fileName(name string) string {
	name = path.Base(strings.ReplaceAll(strings.ToValidUTF8(name, "\uFFFD"), `\`, "/"))
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, name)
	if len(name) > maxFileName { // the end has the type
		name = strings.ToValidUTF8(name[len(name)-maxFileName:], "")
	}
	if name == "." || name == ".." || name == "/" || name == "-" {
		return ""
	}
	return name
}

// URL returns the URL of the file by RFC 6920: ni:///sha-256;… and its name as a parameter. [ParseFileURL] reads it.
func (f File) URL() string {
	text := fileScheme + "://" + fileAlgorithm + base64.RawURLEncoding.EncodeToString(f.Digest[:])
	if f.Name != "" {
		text += "?name=" + url.QueryEscape(f.Name)
	}
	return text
}

// ParseFileURL reads the URL of a file. The error matches ErrInvalid. Only the spelling of [File.URL] is valid.
func ParseFileURL(raw string) (File, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return File{}, fmt.Errorf("%w: %w", errFileURL, err)
	}
	text, _ := strings.CutPrefix(u.Path, fileAlgorithm)
	digest, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(digest) != sha256.Size {
		return File{}, errFileURL
	}
	f := File{Digest: [sha256.Size]byte(digest), Name: u.Query().Get("name")}
	if f.URL() != raw || fileName(f.Name) != f.Name {
		return File{}, errFileURL
	}
	return f, nil
}
