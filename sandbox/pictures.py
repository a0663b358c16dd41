"""Pictures of the demo's products: flat drawings in one palette, 320 × 240, no script, no outside reference."""

_INK, _BRASS, _CREAM, _RED, _SEA, _WOOD, _STEEL = (
    "#16324f",
    "#d9a441",
    "#f7efdd",
    "#c8452f",
    "#2f7f86",
    "#8a5a34",
    "#9fb3bf",
)

# Two colours of the background, from above to below, by the time of day the picture is "taken".
_SKIES = (("#fbe3c2", "#f3b98a"), ("#dcebf2", "#a9cbd9"), ("#e9e4f0", "#b9b3d3"), ("#e4f0e4", "#aed0bb"))

_STROKE = f'fill="none" stroke="{_INK}" stroke-width="5" stroke-linecap="round" stroke-linejoin="round"'
_LINE = f'stroke="{_INK}" stroke-width="4" stroke-linejoin="round"'

MOTIFS = {
    "rope": f"""<g fill="none" stroke="{_BRASS}" stroke-width="15">
<ellipse cx="160" cy="150" rx="66" ry="26"/>
<ellipse cx="160" cy="128" rx="66" ry="26"/><ellipse cx="160" cy="106" rx="66" ry="26"/></g>
<g fill="none" stroke="{_WOOD}" stroke-width="3" stroke-dasharray="3 9">
<ellipse cx="160" cy="150" rx="66" ry="26"/>
<ellipse cx="160" cy="128" rx="66" ry="26"/><ellipse cx="160" cy="106" rx="66" ry="26"/></g>
<path d="M222 112q34 18 18 62" fill="none" stroke="{_BRASS}" stroke-width="15" stroke-linecap="round"/>""",
    "lantern": f"""<path d="M136 66a24 24 0 0 1 48 0" {_STROKE}/>
<path d="M132 66h56l10 22h-76z" fill="{_BRASS}" {_LINE}/>
<rect x="126" y="88" width="68" height="76" rx="8" fill="#fff4c4" {_LINE}/>
<path d="M160 102q22 24 0 50q-22-26 0-50z" fill="{_RED}"/>
<path d="M160 124q9 12 0 26q-9-14 0-26z" fill="{_BRASS}"/>
<path d="M143 88v76M177 88v76" {_STROKE} opacity=".5"/>
<path d="M118 164h84l6 20h-96z" fill="{_BRASS}" {_LINE}/>""",
    "oilskin": f"""<path d="M134 62l-52 26l12 52l24-8v62h84v-62l24 8l12-52l-52-26q-26 18-52 0z"
fill="{_BRASS}" {_LINE}/>
<path d="M160 74v120" {_STROKE}/><path d="M134 62q26 34 52 0" fill="{_INK}"/>
<g fill="{_INK}"><circle cx="150" cy="112" r="4"/><circle cx="150" cy="138" r="4"/>
<circle cx="150" cy="164" r="4"/></g>
<path d="M172 150h22M172 166h22" {_STROKE} opacity=".6"/>""",
    "compass": f"""<circle cx="160" cy="124" r="68" fill="{_BRASS}" {_LINE}/>
<circle cx="160" cy="124" r="52" fill="{_CREAM}" {_LINE}/>
<path d="M160 82l12 42h-24z" fill="{_RED}"/><path d="M160 166l12-42h-24z" fill="{_INK}"/>
<circle cx="160" cy="124" r="6" fill="{_BRASS}"/>
<path d="M160 76v8M160 164v8M112 124h8M200 124h8" {_STROKE}/>""",
    "bell": f"""<path d="M148 62a12 12 0 0 1 24 0" {_STROKE}/>
<path d="M160 62c34 0 40 36 44 84l12 16H104l12-16c4-48 10-84 44-84z"
fill="{_BRASS}" {_LINE}/><path d="M112 146h96" {_STROKE} opacity=".5"/>
<circle cx="160" cy="174" r="11" fill="{_INK}"/>
<path d="M136 136q2-44 14-56" fill="none" stroke="{_CREAM}" stroke-width="6" stroke-linecap="round"/>""",
    "anchor": f"""<g fill="none" stroke="{_INK}" stroke-width="13" stroke-linecap="round">
<circle cx="160" cy="70" r="14"/>
<path d="M160 86v100M130 104h60M98 140q4 46 62 46q58 0 62-46"/></g>
<path d="M86 156l14-28l18 24zM234 156l-14-28l-18 24z" fill="{_INK}"/>""",
    "boots": f"""<path d="M100 62h42v82q26 6 26 26v14h-68z" fill="{_SEA}" {_LINE}/>
<path d="M100 174h68v12h-68z" fill="{_INK}"/>
<path d="M176 62h42v82q26 6 26 26v14h-68z" fill="{_SEA}" {_LINE}/>
<path d="M176 174h68v12h-68z" fill="{_INK}"/>
<path d="M100 80h42M176 80h42" stroke="{_CREAM}" stroke-width="8"/>""",
    "flag": f"""<path d="M104 52v144" {_STROKE}/>
<path d="M106 58h116l-22 30l22 30H106z" fill="{_RED}" {_LINE}/>
<path d="M106 118h88l-16 24l16 24h-88z" fill="{_CREAM}" {_LINE}/>
<circle cx="104" cy="50" r="7" fill="{_BRASS}"/>
<circle cx="150" cy="88" r="13" fill="{_CREAM}"/>""",
    "knife": f"""<path d="M92 164l76-76q34-26 62-26q-2 26-30 58l-52 52z" fill="{_STEEL}" {_LINE}/>
<path d="M76 180l28-28l44 20l-30 30q-22 10-42-22z" fill="{_WOOD}" {_LINE}/>
<circle cx="104" cy="178" r="5" fill="{_BRASS}"/>
<path d="M176 104q20-20 38-28" stroke="{_CREAM}" stroke-width="5" fill="none" stroke-linecap="round"/>""",
    "sextant": f"""<path d="M160 58L92 168q68 40 136 0z" fill="none" stroke="{_BRASS}" stroke-width="13"
stroke-linejoin="round"/>
<path d="M160 62l22 120" {_STROKE}/>
<path d="M100 176q60 32 120 0" fill="none" stroke="{_INK}" stroke-width="4" stroke-dasharray="2 7"/>
<rect x="92" y="96" width="52" height="18" rx="6" fill="{_INK}"/>
<circle cx="160" cy="62" r="13" fill="{_CREAM}" {_LINE}/>""",
    "barometer": f"""<circle cx="160" cy="124" r="70" fill="{_WOOD}" {_LINE}/>
<circle cx="160" cy="124" r="52" fill="{_CREAM}" {_LINE}/>
<path d="M122 148a44 44 0 1 1 76 0" fill="none" stroke="{_SEA}" stroke-width="6" stroke-dasharray="4 6"/>
<path d="M160 124l28-32" stroke="{_RED}" stroke-width="6" stroke-linecap="round"/>
<circle cx="160" cy="124" r="7" fill="{_INK}"/>
<path d="M142 158h36" {_STROKE}/>""",
    "block": f"""<path d="M146 58h28l4 18h-36z" fill="{_STEEL}" {_LINE}/>
<path d="M124 78h72l12 46l-12 62h-72l-12-62z" fill="{_WOOD}" {_LINE}/>
<circle cx="160" cy="132" r="26" fill="{_BRASS}" {_LINE}/><circle cx="160" cy="132" r="7" fill="{_INK}"/>
<path d="M134 132v68M186 132v54" stroke="{_CREAM}" stroke-width="9" stroke-linecap="round"/>""",
    "shackle": f"""<path d="M120 96v30a40 40 0 0 0 80 0V96" fill="none" stroke="{_STEEL}"
stroke-width="20"/>
<path d="M110 126a50 50 0 0 0 100 0" fill="none" stroke="{_INK}" stroke-width="4"/>
<rect x="96" y="76" width="128" height="22" rx="11" fill="{_STEEL}" {_LINE}/>
<circle cx="236" cy="87" r="15" fill="{_BRASS}" {_LINE}/>
<circle cx="236" cy="87" r="5" fill="{_INK}"/>""",
    "needle": f"""<path d="M88 188L214 62q16-8 10 10L98 198z" fill="{_STEEL}" {_LINE}/>
<path d="M202 76l10-10" {_STROKE}/>
<path d="M208 70c34 18 6 58-22 50s-60 10-40 34s66 4 76 26" fill="none" stroke="{_RED}" stroke-width="6"
stroke-linecap="round"/>""",
    "mug": f"""<path d="M104 84h92v84q0 22-22 22h-48q-22 0-22-22z" fill="{_CREAM}" {_LINE}/>
<path d="M196 104h16q22 0 22 24t-22 24h-16" fill="none" stroke="{_INK}" stroke-width="11"/>
<path d="M104 84h92" stroke="{_SEA}" stroke-width="11"/>
<path d="M150 110v46M136 124h28M132 142q2 16 18 16t18-16" fill="none" stroke="{_SEA}" stroke-width="6"
stroke-linecap="round"/>
<path d="M130 66q-10-12 0-24M156 66q-10-12 0-24" fill="none" stroke="{_CREAM}" stroke-width="6"
stroke-linecap="round"/>""",
    "spyglass": f"""<g transform="rotate(-24 160 124)">
<rect x="64" y="104" width="76" height="44" rx="5" fill="{_WOOD}" {_LINE}/>
<rect x="138" y="108" width="60" height="36" fill="{_BRASS}" {_LINE}/>
<rect x="196" y="112" width="56" height="28" fill="{_BRASS}" {_LINE}/>
<rect x="56" y="98" width="16" height="56" rx="4" fill="{_BRASS}" {_LINE}/>
<rect x="250" y="106" width="12" height="40" rx="4" fill="{_INK}"/></g>""",
    "chart": f"""<path d="M84 76l50-14l52 14l50-14v112l-50 14l-52-14l-50 14z" fill="{_CREAM}" {_LINE}/>
<path d="M134 62v112M186 76v112" stroke="{_INK}" stroke-width="3" opacity=".35"/>
<path d="M84 150q28-30 56-12t40-22t56-10v56l-50 14l-52-14l-50 14z" fill="{_SEA}" opacity=".55"/>
<path d="M106 104q30-18 54 10t52-16" fill="none" stroke="{_RED}" stroke-width="5" stroke-dasharray="9 8"/>
<path d="M206 90l14 14m0-14l-14 14" stroke="{_RED}" stroke-width="6" stroke-linecap="round"/>""",
    "lifebuoy": f"""<circle cx="160" cy="124" r="52" fill="none" stroke="{_CREAM}" stroke-width="36"/>
<circle cx="160" cy="124" r="52" fill="none" stroke="{_RED}" stroke-width="36" stroke-dasharray="40.8
40.8" stroke-dashoffset="20"/>
<circle cx="160" cy="124" r="70" fill="none" {_LINE}/>
<circle cx="160" cy="124" r="34" fill="none" {_LINE}/>""",
    "gloves": f"""<path d="M92 184v-52l-10-34q8-10 16 0l8 22V72q9-10 16 0v40V62q9-10 18 0v50V70q9-9 16
0v60l-8 54z" fill="{_BRASS}" {_LINE}/>
<path d="M228 184v-52l10-34q-8-10-16 0l-8 22V72q-9-10-16 0v40V62q-9-10-18 0v50V70q-9-9-16 0v60l8 54z"
fill="{_BRASS}" {_LINE}/>
<path d="M92 172h56M172 172h56" stroke="{_INK}" stroke-width="9"/>""",
    "hat": f"""<path d="M70 162q20-14 46-16q0-62 44-66q44 4 44 66q26 2 46 16q10 18-20 22q-70 14-140
0q-30-4-20-22z" fill="{_BRASS}" {_LINE}/>
<path d="M116 146q44 14 88 0" {_STROKE}/>
<path d="M132 132q2-30 18-38" fill="none" stroke="{_CREAM}" stroke-width="6" stroke-linecap="round"/>""",
    "sweater": f"""<path d="M132 62l-48 24l-6 92h28l6-54v66h96v-66l6 54h28l-6-92l-48-24q-28 22-56 0z"
fill="{_INK}"/>
<path d="M114 112h92M112 126h96M112 154h96M112 168h96" stroke="{_CREAM}" stroke-width="5"
stroke-dasharray="6 6"/>
<path d="M132 62q28 34 56 0" fill="none" stroke="{_RED}" stroke-width="8"/>
<path d="M112 184h96" stroke="{_RED}" stroke-width="9"/>""",
    "logbook": f"""<path d="M96 60h118q12 0 12 12v112q0 12-12 12H96z" fill="{_SEA}" {_LINE}/>
<path d="M96 60h20v136H96z" fill="{_INK}"/>
<rect x="136" y="86" width="70" height="38" rx="4" fill="{_CREAM}"/>
<path d="M146 98h50M146 111h34" {_STROKE} opacity=".7"/>
<path d="M196 196v20l-10-9l-10 9v-20z" fill="{_RED}"/>""",
    "hourglass": f"""<path d="M116 62h88v8q0 32-34 54q34 22 34 54v8h-88v-8q0-32 34-54q-34-22-34-54z"
fill="#eef7f8" {_LINE}/>
<path d="M132 90h56q-6 20-28 34q-22-14-28-34z" fill="{_BRASS}"/>
<path d="M126 182q4-26 34-36q30 10 34 36z" fill="{_BRASS}"/>
<path d="M160 124v26" stroke="{_BRASS}" stroke-width="4"/>
<path d="M104 58h112M104 190h112" stroke="{_WOOD}" stroke-width="15" stroke-linecap="round"/>""",
    "kettle": f"""<path d="M118 92q42-56 84 0" {_STROKE}/>
<path d="M112 96h96l16 78q2 16-16 16h-96q-18 0-16-16z" fill="{_RED}" {_LINE}/>
<path d="M218 130q22-4 30-34l16 8q-10 40-40 52" fill="{_RED}" {_LINE}/>
<path d="M124 96q36-22 72 0z" fill="{_INK}"/>
<circle cx="160" cy="80" r="7" fill="{_BRASS}"/>
<path d="M126 172q-4-30 4-58" fill="none" stroke="{_CREAM}" stroke-width="6" stroke-linecap="round"/>""",
}


def picture(motif: str, title: str, number: int) -> str:
    """An SVG document. `number` picks the sky and makes the ids unique when several stand on one page."""
    above, below = _SKIES[number % len(_SKIES)]
    name = f"sky{number}"
    drawing = MOTIFS[motif].replace("\n", " ")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 320 240" role="img"><title>{title}</title>'
        f'<defs><linearGradient id="{name}" x1="0" y1="0" x2="0" y2="1"><stop offset="0" stop-color="{above}"/>'
        f'<stop offset="1" stop-color="{below}"/></linearGradient></defs>'
        f'<rect width="320" height="240" fill="url(#{name})"/>'
        f'<path d="M0 206q20-12 40 0t40 0t40 0t40 0t40 0t40 0t40 0t40 0v34H0z" fill="{_SEA}" opacity=".35"/>'
        f'{drawing}<path d="M0 222q20-12 40 0t40 0t40 0t40 0t40 0t40 0t40 0t40 0v18H0z" fill="{_SEA}"'
        ' opacity=".55"/></svg>'
    )
