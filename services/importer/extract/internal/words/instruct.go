package words

import (
	"regexp"
	"slices"
	"strings"
)

var patterns = regexp.MustCompile(`(?i)` + strings.Join([]string{
	`\b(ignore|disregard|forget|override|bypass)\b.{0,40}\b(instructions?|prompts?|rules|guidelines|directions|(above|before) text)\b`,
	`\b(ignore|disregard|forget)\b.{0,20}\b(everything|anything|all|what)\b.{0,20}\b(above|before|previous|earlier|prior)\b`,
	`\b(system|developer|hidden) (prompt|message|instructions?)\b`,
	`\b(you are|you're|act as|pretend to be) (now )?(an? )?(ai|a\.i\.|assistant|chatbot|language model|llm|gpt)\b`,
	`\b(as|dear|hey|attention|note to) (an? |the )?(ai|a\.i\.|language model|llm|assistant|chatgpt|gpt|claude|gemini)\b`,
	`\b(ai|a\.i\.|llm|assistant|chatgpt|claude|gemini|model|bot|extractor)s?( model)?\b` +
		`.{0,20}\b(must|should|shall|please|will now|are instructed)\b`,
	`\b(set|change|make|rename|replace)\b.{0,12}\b(recipe('s)? )?(title|name of the recipe|recipe name|description field|json)\b` +
		`.{0,10}\b(to|with|as)\b`,
	`\b(add|put|insert|write|include|output|print|return|respond|reply|answer)\b.{0,30}` +
		`\b(to|in|into|as|with|only|the) (the )?(json|output|prompt)\b`,
	`\brespond (only )?with\b`,
	`<\|?(im_start|im_end|system|endoftext)\|?>|\[/?INST\]|###\s*(system|instruction)`,
	`(ignoriere|vergiss)\b.{0,40}\b(anweisungen|regeln)`,
	`ignor(a|e|ez)\b.{0,40}\b(instrucciones|instructions|istruzioni|instruções)`,
	`(игнорируй|забудь)\S*\s.{0,40}инструкци`,
	`התעלם.{0,40}הוראות`,
}, "|"))

// hints are parts of words, one of which is in every match of a pattern. Looking for them takes a tenth of the time that the
// patterns take. A letter that folds to an s is a hint as well.
var hints = strings.Fields(`ignor disregard forget override bypass system developer hidden ai a.i. assistant chatbot model llm gpt
claude gemini bot extractor title name description json output prompt respond im_ endoftext inst vergiss игнорируй забудь התעלם ſ`)

// longest bounds the text that is examined; a sentence is far shorter.
const longest = 4000

// Speaks reports whether a sentence or a line gives instructions to a model. It looks for the usual phrases only, so
// nothing may depend on it alone.
func Speaks(text string) bool {
	text = text[:min(len(text), longest)]
	lower := strings.ToLower(text)
	return slices.ContainsFunc(hints, func(hint string) bool { return strings.Contains(lower, hint) }) && patterns.MatchString(text)
}
